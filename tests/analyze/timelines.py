"""Runs of two arms whose times have known causes.

An arm is a chain of kernels a pass. Its serial twin runs them one after the other, with
the gaps of the plan; its captured graph starts some of them early. Every replay shows
the same, but for what `Flaws` plants.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import polars as pl

from layerscope.experiment import CAPTURED, SERIAL
from layerscope.run import Run
from layerscope.run_header import KernelCost, Trial
from layerscope.schema import KERNELS, SAMPLES
from tests import handmade

BASE, OTHER = "reference", "fused"
LENGTHS = (8, 16, 24)
CAPTURES, ROUNDS, PASSES = 2, 3, 5
LAUNCH_NS = 6_000
OUTLIER_NS = 1_000_000

COSTS = [
    KernelCost(blocks=1, added_ns=100.0, low_ns=90.0, high_ns=110.0),
    KernelCost(blocks=201, added_ns=200.0, low_ns=190.0, high_ns=210.0),
]
"""What the profiler adds: 100 ns, and half a nanosecond a block beyond the first,
up to 200 ns."""


class Kernel(NamedTuple):
    """A kernel of a pass, and how the captured graph runs it in another way."""

    region: str
    name: str
    duration_ns: int
    gap_ns: int = 0
    role: str | None = None
    blocks: int = 101
    early_ns: int = 0
    """How long before the end of all before it the captured graph starts it; its record
    then holds a wait. Without, it starts after its gap."""

    saved_ns: int = 0
    """How much less it moves the end in the captured graph; beyond its duration, it
    ends before the others do."""

    stream: int = 7


Chain = Sequence[Kernel]


@dataclass(frozen=True)
class Flaws:
    """What goes wrong in a recording; it must change no line."""

    dropped: frozenset[tuple[str, int, int]] = frozenset()
    """Replays (arm, capture, round) that are missing from the serial records."""

    outliers: frozenset[tuple[str, int]] = frozenset()
    """(arm, capture) in whose round 1 every used pass has a gap of a millisecond."""

    lost: frozenset[tuple[str, int]] = frozenset()
    """(arm, capture) in whose round 0 a pass lacks the record of its first kernel."""


def serial_ns(chain: Chain) -> int:
    """Time of a pass of the serial twin."""
    return sum(kernel.gap_ns + kernel.duration_ns for kernel in chain)


def captured_ns(chain: Chain) -> int:
    """Time of a pass of the captured graph."""
    return max(end for _, end in _pass(chain, CAPTURED, 0))


def arms_run(
    base: Chain,
    other: Chain,
    *,
    twins: Literal["measured", "same"] | None = "measured",
    flaws: Flaws | None = None,
    **header: Any,  # noqa: ANN401 (any field of the header)
) -> Run:
    """A run of `BASE` and `OTHER`, with serial twins unless `twins` is None.

    Args:
        base: kernels of a pass of the base.
        other: the same of the other arm.
        twins: the outcome of the serial twins of both arms.
        flaws: of the recording; none by default.
        header: fields of the header that are not as usual.
    """
    chains = {BASE: base, OTHER: other}
    trials = [
        Trial(arm=arm, experiment=SERIAL, outcome=twins) for arm in chains if twins
    ]
    graphs = [(arm, CAPTURED) for arm in chains]
    graphs += [(arm, SERIAL.name) for arm in chains if twins == "measured"]
    values: dict[str, Any] = {"trials": trials, "observer_costs": COSTS}
    return Run(
        header=handmade.header(**(values | header)),
        samples=_samples(chains, graphs),
        kernels=_kernels(chains, graphs, flaws or Flaws()),
        path=Path("planted"),
    )


def one_pass(chain: Chain, **changes: Any) -> pl.DataFrame:  # noqa: ANN401 (columns)
    """`schema.KERNELS` of a single pass of the serial twin."""
    rows = _replay(BASE, chain, SERIAL.name, 0)
    frame = pl.DataFrame(rows, schema=KERNELS).filter(pl.col("pass_index") == 1)
    return frame.with_columns(**changes)


def cost_ns(kernel: Kernel) -> float:
    """What the profiler adds to it in the serial twin."""
    return 100 + (min(kernel.blocks, 201) - 1) / 2


def _samples(
    chains: dict[str, Chain], graphs: Sequence[tuple[str, str]]
) -> pl.DataFrame:
    pass_ns = {
        (arm, experiment): (captured_ns if experiment == CAPTURED else serial_ns)(
            chains[arm]
        )
        for arm, experiment in graphs
    }
    rows = [
        {
            "phase": "anchor",
            "arm": arm,
            "experiment": experiment,
            "capture": capture,
            "round": round_,
            "position": position,
            "passes": passes,
            "step": round_,
            "duration_ns": LAUNCH_NS + passes * pass_ns[arm, experiment],
            "sm_clock_mhz": 1_980,
            "throttle_reasons": 0,
        }
        for capture in range(CAPTURES)
        for round_ in range(ROUNDS)
        for position, (arm, experiment) in enumerate(graphs)
        for passes in LENGTHS
    ]
    return pl.DataFrame(rows, schema=SAMPLES)


def _kernels(
    chains: dict[str, Chain], graphs: Sequence[tuple[str, str]], flaws: Flaws
) -> pl.DataFrame:
    rows = []
    for arm, experiment in graphs:
        is_serial = experiment != CAPTURED
        for capture in range(CAPTURES):
            for round_ in range(ROUNDS):
                if is_serial and (arm, capture, round_) in flaws.dropped:
                    continue
                is_outlier = round_ == 1 and (arm, capture) in flaws.outliers
                late_ns = OUTLIER_NS if is_serial and is_outlier else 0
                replay = _replay(arm, chains[arm], experiment, late_ns)
                if is_serial and round_ == 0 and (arm, capture) in flaws.lost:
                    replay.pop(2 * len(chains[arm]))
                keys = {"capture": capture, "round": round_, "replay": round_}
                rows += [row | keys for row in replay]
    return pl.DataFrame(rows, schema=KERNELS)


def _replay(
    arm: str, chain: Chain, experiment: str, late_ns: int
) -> list[dict[str, Any]]:
    rows = []
    frontier = 0
    for index in range(PASSES):
        times = _pass(chain, experiment, frontier, late_ns)
        begin = min(start for start, _ in times)
        for place, (kernel, (start, end)) in enumerate(zip(chain, times, strict=True)):
            rows.append(
                {
                    "arm": arm,
                    "experiment": experiment,
                    "capture": 0,
                    "round": 0,
                    "replay": 0,
                    "pass_index": index,
                    "node": index * len(chain) + place,
                    "kind": "kernel",
                    "name": kernel.name,
                    "region": kernel.region,
                    "role": kernel.role,
                    "stream": kernel.stream if experiment == CAPTURED else 7,
                    "pass_start_ns": begin,
                    "start_ns": start - begin,
                    "duration_ns": end - start,
                    **dict.fromkeys(("grid_y", "grid_z", "block_y", "block_z"), 1),
                    "grid_x": kernel.blocks,
                    "block_x": 256,
                }
            )
        frontier = max(end for _, end in times)
    return rows


def _pass(
    chain: Chain, experiment: str, frontier: int, late_ns: int = 0
) -> list[tuple[int, int]]:
    """Start and end of every kernel of a pass that begins at `frontier`."""
    times = []
    for place, kernel in enumerate(chain):
        if experiment == CAPTURED:
            wait = -kernel.early_ns if kernel.early_ns else kernel.gap_ns
            end = frontier + max(wait, 0) + kernel.duration_ns - kernel.saved_ns
        else:
            wait = kernel.gap_ns + round(cost_ns(kernel))
            wait += 0 if place else late_ns
            end = frontier + wait + kernel.duration_ns
        times.append((frontier + wait, end))
        frontier = max(frontier, end)
    return times
