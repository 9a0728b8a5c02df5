"""The bench: one problem on one device, its arms, and what plays them."""

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import inf

import torch

from layerscope.graphs.players import head_for, player_for
from layerscope.graphs.replay import Body, Player, Replay
from layerscope.layers.families import required_bytes
from layerscope.layers.problem import Problem, restart
from layerscope.layers.routing import distinct_experts
from layerscope.nvml import ClockReader
from layerscope.progress import Progress
from layerscope.record.nvtx import NvtxObserver, arm_range
from layerscope.regions import Region, layer_pass, observing, region
from layerscope.registry import Dispatched, dispatch
from layerscope.run import RunWriter
from layerscope.study import Study

WARM_LAUNCHES = 3
"""Untimed launches of every fresh replay: first launches load code and fill caches."""


@dataclass(slots=True)
class Bench:
    """Everything that the phases of a run share."""

    study: Study
    problem: Problem
    player: Player
    arms: dict[str, Dispatched]
    """By `Arm.name`, in the study's order; the A/A arm shares the first one's build."""

    writer: RunWriter
    progress: Progress
    clocks: ClockReader
    head: Callable[[], None]
    required: list[list[int]]
    """[steps][passes]: bytes that the first passes together must move."""

    replays: dict[tuple[str, int], Replay] = field(default_factory=dict)
    """Of the current capture, by arm name and length."""

    step: int = -1
    """The step that the last enqueued replay runs; mirrors the device's counter."""

    deadline_s: float = inf
    """Monotonic time at which the study's budget ends."""

    is_cut: bool = False
    """Whether the budget ended something that was planned."""

    _launched: int = -1
    _hold: int = 1
    _captures: int = 0

    def body(self, arm: str) -> Body:
        """What one replay of `arm` runs: the head, then the passes by region."""
        dispatched = self.arms[arm]
        regions = self.problem.spec.regions

        def play(passes: int) -> None:
            with region(Region.OTHER):
                self.head()
            for index in range(passes):
                with layer_pass(index):
                    for name in regions:
                        with region(name):
                            dispatched.steps[name].run(name, index)

        return play

    def capture(self, lengths: Sequence[int] | None = None) -> None:
        """Replace all replays by fresh ones, and warm them.

        Arms are captured in a random order, for where a capture's memory lies depends
        on what was captured before it.

        Args:
            lengths: of the study's, those that are needed; None for all.
        """
        self.release()
        seed = f"{self.study.seed}:capture:{self._captures}"
        self._captures += 1
        arms = list(self.arms)
        random.Random(seed).shuffle(arms)  # noqa: S311 (not a secret)
        for arm in arms:
            body = self.body(arm)
            with arm_range(arm), observing(NvtxObserver()):
                first: Replay | None = None
                for length in lengths or self.study.lengths:
                    replay = self.player.capture(body, length, first)
                    self.replays[arm, length] = replay
                    first = first or replay
        for replay in self.replays.values():
            for _ in range(WARM_LAUNCHES):
                replay.launch()
        self.player.wait()

    def must_stop(self, done: int, fewest: int) -> bool:
        """Whether the budget has ended and `fewest` of what is planned are `done`."""
        if done < fewest or time.monotonic() < self.deadline_s:
            return False
        self.is_cut = True
        return True

    def longest(self, arm: str) -> Replay:
        """The replay of `arm` with every pass."""
        return self.replays[arm, self.study.passes]

    def restart(self, hold: int) -> None:
        """Go on with the next step, and let `hold` replays in a row share each step.

        A round whose replays share a step compares arms and lengths on the same inputs
        and experts; without that, the draw of experts would be noise between them.
        """
        step = (self.step + 1) % self.study.steps
        self.player.wait()
        restart(self.problem, hold, step)
        self.player.wait()
        self._launched, self._hold = step * hold - 1, hold

    def next_step(self) -> int:
        """Count one enqueued replay; the step it runs."""
        self._launched += 1
        self.step = self._launched // self._hold % self.study.steps
        return self.step

    def release(self) -> None:
        """Close all replays."""
        self.player.wait()
        for replay in self.replays.values():
            replay.close()
        self.replays.clear()


def open_bench(
    study: Study, problem: Problem, writer: RunWriter, progress: Progress
) -> Bench:
    """Build every arm for `problem` and note what was built in the run's header.

    Raises:
        BackendError: an arm cannot be built.
    """
    arms = {}
    for arm in study.arms:
        progress.phase(f"building {arm.name}", 1)
        arms[arm.name] = dispatch(arm, problem)
        progress.advance()
    again = study.all_arms[-1]
    arms[again.name] = arms[study.arms[0].name]
    header = writer.header
    header.builds = [arms[arm.name].build for arm in study.arms]
    header.decisions = [d for arm in study.arms for d in arms[arm.name].decisions]
    header.distinct_experts = _distinct(problem)
    facts = header.environment.device
    return Bench(
        study=study,
        problem=problem,
        player=player_for(problem.device),
        arms=arms,
        writer=writer,
        progress=progress,
        clocks=ClockReader(None if facts.type == "cpu" else facts.index, facts.uuid),
        head=head_for(problem),
        required=_required(problem),
    )


def _distinct(problem: Problem) -> list[list[int]]:
    plan = problem.expert_plan
    return [] if plan is None else distinct_experts(plan)


def required_per_region(problem: Problem) -> dict[Region, int]:
    """Bytes each region of a pass must move, averaged over the drawn routing."""
    drawn = [count for row in _distinct(problem) for count in row]
    distinct: list[int | None] = [*drawn] or [None]
    totals = dict.fromkeys(problem.spec.regions, 0)
    for count in distinct:
        for name, value in required_bytes(problem.spec, count).items():
            totals[name] += value
    return {name: total // len(distinct) for name, total in totals.items()}


def _required(problem: Problem) -> list[list[int]]:
    spec = problem.spec
    dense: list[list[int | None]] = [[None] * problem.passes] * problem.steps
    distinct = [[*row] for row in _distinct(problem)] or dense
    cost = {
        count: sum(required_bytes(spec, count).values())
        for row in distinct
        for count in row
    }
    table = []
    for row in distinct:
        sums = torch.tensor([cost[count] for count in row]).cumsum(0)
        table.append([int(value) for value in sums])
    return table
