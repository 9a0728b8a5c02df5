"""Times of bodies that nothing else is measured beside: limits of the machine.

As anchors are timed, of what has no inputs, no arms and no run: fresh captures, three
lengths and their slope, replays interleaved in random order.
"""

import random
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar

import polars as pl
import torch

from layerscope.analyze.statistics import Estimate, estimate, pass_times
from layerscope.experiment import CAPTURED
from layerscope.graphs.replay import Body, Player, Replay
from layerscope.graphs.settling import settled
from layerscope.progress import Progress, SilentProgress
from layerscope.run_header import LaunchPhase

Key = TypeVar("Key", bound=Hashable)

_PHASE: Final = "limits"
_WARM_LAUNCHES: Final = 2
_LOOK_ROUNDS: Final = 4


def _nothing(phase: LaunchPhase) -> None:
    """What is noted of limits that are no study's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How often limits are measured."""

    captures: int = 3
    rounds: int = 8
    """Of every capture; in each, every body is replayed at every length."""

    seed: int = 0
    """Fixes the order of the replays."""

    progress: Progress = field(default_factory=SilentProgress)

    note: Callable[[LaunchPhase], None] = _nothing
    """Called after every capture was timed, while its replays are there."""

    phase: LaunchPhase = "bounds"
    """What is noted then."""


@dataclass(frozen=True, slots=True)
class Timed:
    """A body, and the lengths at which it is replayed."""

    body: Body
    lengths: tuple[int, ...]


def times(
    bodies: Mapping[Key, Timed], player: Player, device: torch.device, effort: Effort
) -> dict[Key, Estimate]:
    """The time of a pass of every body, in ns, from interleaved replays.

    Args:
        bodies: what is replayed.
        player: captures and times it.
        device: where it plays.
        effort: how often.
    """
    effort.progress.phase("limits", effort.captures)
    rows = []
    for capture in range(effort.captures):
        rows += _capture_rows([*bodies.values()], player, device, capture, effort)
        effort.progress.advance()
    found = pass_times(pl.DataFrame(rows))
    by_body = {key: pl.col("experiment") == str(n) for n, key in enumerate(bodies)}
    return {
        key: estimate(found.filter(is_own), "pass_ns")
        for key, is_own in by_body.items()
    }


def fastest(
    bodies: Mapping[tuple[Key, int | None], Timed],
    player: Player,
    device: torch.device,
    effort: Effort,
) -> dict[Key, Estimate]:
    """As `times`, of every key with the grid that is fastest.

    Which one that is, a look at all of them tells; it is then timed anew, for the least
    of several noisy times would be too small.

    Args:
        bodies: by key and grid.
        player: captures and times them.
        device: where it plays.
        effort: how often, once the grid is chosen.
    """
    look = replace(effort, captures=1, rounds=_LOOK_ROUNDS)
    least: dict[Key, tuple[float, Timed]] = {}
    for (key, grid), seen in times(bodies, player, device, look).items():
        if key not in least or seen.value < least[key][0]:
            least[key] = seen.value, bodies[key, grid]
    chosen = {key: timed for key, (_, timed) in least.items()}
    return times(chosen, player, device, effort)


def _capture_rows(
    bodies: list[Timed],
    player: Player,
    device: torch.device,
    capture: int,
    effort: Effort,
) -> list[dict[str, str | int]]:
    """The replays of one fresh capture, as rows of samples; one `experiment` a body."""
    replays: dict[tuple[int, int], Replay] = {}
    try:
        for number, timed in enumerate(bodies):
            for length in timed.lengths:
                replays[number, length] = player.capture(timed.body, length)
        for replay in replays.values():
            for _ in range(_WARM_LAUNCHES):
                replay.launch()
        player.wait()
        with settled(player, device):
            rows = _timed_rows(replays, player, capture, effort)
            effort.note(effort.phase)
        return rows
    finally:
        player.wait()
        for replay in replays.values():
            replay.close()


def _timed_rows(
    replays: Mapping[tuple[int, int], Replay],
    player: Player,
    capture: int,
    effort: Effort,
) -> list[dict[str, str | int]]:
    """Rounds of warm replays, by number of the body and length; all have ended."""
    draw = random.Random(f"{effort.seed}:{capture}")  # noqa: S311 (not a secret)
    rounds = []
    for _ in range(effort.rounds):
        order = draw.sample(list(replays), len(replays))
        rounds.append((order, player.time([replays[place] for place in order])))
    return [
        {
            "phase": _PHASE,
            "arm": CAPTURED,
            "experiment": str(number),
            "capture": capture,
            "round": index,
            "passes": length,
            "duration_ns": duration_ns,
        }
        for index, (order, timing) in enumerate(rounds)
        for (number, length), duration_ns in zip(
            order, timing.durations_ns(), strict=True
        )
    ]
