import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.analyze.trace_gaps import (
    GapCause,
    gap_causes,
    gaps_by_owner,
    without_causes,
)
from tests.analyze.placed_kernels import Row, kernel, launched
from tests.analyze.planted import ranges

Launch = tuple[int, str, int, int]


def causes(rows: list[Row], *launches: Launch) -> list[tuple[str | None, int]]:
    """Cause and lateness of every kernel's gap."""
    return gap_causes(launched(rows, *launches)).select("cause", "late_ns").rows()


FIRST = kernel(0, 100, correlation=1)
EARLY = (1, "cudaLaunchKernel", -20, -10)


@pytest.mark.parametrize(
    ("start", "end", "cause", "late_ns"),
    [
        (120, 125, GapCause.LAUNCH, 20),  # begun after the device had run dry
        (95, 105, GapCause.LAUNCH, 0),  # still going on then
        (80, 100, GapCause.DEVICE, 0),  # over by then
        (131, 135, GapCause.UNKNOWN, 0),  # after the kernel: clocks differ
    ],
)
def test_cause_of_a_gap(start: int, end: int, cause: str, late_ns: int) -> None:
    """A gap is the host's only if the launch had not ended when the device idled."""
    rows = [FIRST, kernel(130, 10, correlation=2)]
    found = causes(rows, EARLY, (2, "cudaLaunchKernel", start, end))
    assert found == [(None, 0), (cause, late_ns)]


def test_a_gap_before_a_kernel_without_launch() -> None:
    """Where the launch is not in the trace, nobody knows why there is a gap."""
    rows = [FIRST, kernel(130, 10, correlation=2), kernel(150, 10)]
    unknown = (GapCause.UNKNOWN, 0)
    assert causes(rows, EARLY) == [(None, 0), unknown, unknown]


@pytest.mark.parametrize(
    ("call", "cause"),
    [
        ("cudaGraphLaunch", GapCause.DEVICE),
        ("hipGraphLaunch", GapCause.LAUNCH),
    ],
)
def test_gaps_within_a_replay(call: str, cause: str) -> None:
    """CUDA launches a graph whole; HIP may hand over its nodes while it launches."""
    rows = [FIRST, *(kernel(at, 10, correlation=2) for at in (130, 150))]
    found = causes(rows, EARLY, (2, call, 110, 145))
    assert found == [(None, 0), (GapCause.LAUNCH, 10), (cause, 0)]


@pytest.mark.parametrize(
    ("begin", "end", "device", "cause"),
    [
        (40, 200, 0, GapCause.REPLAY),  # all of the gap from 100 to 130
        (105, 110, 0, GapCause.REPLAY),  # a part of it
        (40, 101, 0, GapCause.REPLAY),
        (129, 500, 0, GapCause.REPLAY),
        (40, 100, 0, GapCause.LAUNCH),  # before it
        (130, 500, 0, GapCause.LAUNCH),  # after it
        (40, 200, 1, GapCause.LAUNCH),
        (40, 200, None, GapCause.LAUNCH),
    ],
)
def test_a_replay_without_kernels(
    begin: int, end: int, device: int | None, cause: str
) -> None:
    """Nobody knows why there is a gap in which a graph ran that lacks its kernels."""
    rows = [FIRST, kernel(130, 10, correlation=2)]
    swept = launched(rows, EARLY, (2, "cudaLaunchKernel", 120, 125))
    where = {"kind": "graph", "device": device}
    early = ranges(("CUDA graph 7", -90, -80), **where)
    found = gap_causes(
        swept, early.vstack(ranges(("CUDA graph 7", begin, end), **where))
    )
    assert found["cause"].to_list() == [None, cause]
    assert found["late_ns"][1] == (20 if cause is GapCause.LAUNCH else 0)


def test_a_short_replay_after_a_long_one() -> None:
    """A gap within a long replay is so although a later one is over."""
    rows = [FIRST, kernel(130, 10, correlation=2)]
    swept = launched(rows, EARLY, (2, "cudaLaunchKernel", 120, 125))
    told = ranges(("a", 40, 200), ("b", 50, 60), kind="graph", device=0)
    assert gap_causes(swept, told)["cause"][1] == GapCause.REPLAY


def test_a_device_without_number() -> None:
    """Replays and kernels of a file that numbers no devices are of the same one."""
    rows = [kernel(at, 10, device=None) for at in (0, 30)]
    told = ranges(("CUDA graph", 10, 30), kind="graph")
    assert gap_causes(launched(rows), told)["cause"][1] == GapCause.REPLAY


def test_annotations_are_no_replays() -> None:
    """Other ranges on a device say nothing of its gaps, whatever their names."""
    rows = [FIRST, kernel(130, 10, correlation=2)]
    swept = launched(rows, EARLY, (2, "cudaLaunchKernel", 120, 125))
    told = ranges(("CUDA graph 7", 40, 200), device=0)
    assert gap_causes(swept, told)["cause"][1] == GapCause.LAUNCH


def test_without_causes() -> None:
    """Where kernels may be missing anywhere, no gap has a cause that can be told."""
    rows = [kernel(at, 10, correlation=at) for at in (0, 30, 60)]
    late = [(at, "cudaLaunchKernel", at - 5, at - 1) for at in (30, 60)]
    told = ranges(("CUDA graph 7", 12, 20), kind="graph", device=0)
    found = without_causes(gap_causes(launched(rows, *late), told))
    causes = [None, GapCause.REPLAY, GapCause.UNKNOWN]
    assert found["cause"].to_list() == causes
    assert found["late_ns"].to_list() == [0, 0, 0]


def test_launches_are_joined_within_their_process() -> None:
    """A correlation means the launch of its own process only."""
    rows = [FIRST, kernel(130, 10, correlation=2, process=5)]
    found = causes(rows, EARLY, (2, "cudaLaunchKernel", 120, 125))
    assert found[1] == (GapCause.UNKNOWN, 0)


def test_gaps_by_owner() -> None:
    """Gaps are counted by the kernel that ends them, the largest sum first."""
    rows = [
        FIRST,
        kernel(130, 10, correlation=2, name="norm", region="attention"),
        kernel(150, 10, correlation=3, name="gemm"),
        kernel(200, 10, correlation=4, name="norm", region="attention"),
    ]
    late = [(each, "cudaLaunchKernel", at, at) for each, at in ((2, 110), (4, 170))]
    found = gaps_by_owner(gap_causes(launched(rows, EARLY, *late)))
    expected = pl.DataFrame(
        {
            "region": ["attention", "unassigned"],
            "name": ["norm", "gemm"],
            "cause": ["late launch", "unknown"],
            "gaps": [2, 1],
            "gap_ns": [70, 10],
            "median_ns": [35.0, 10.0],
            "largest_ns": [40, 10],
            "late_ns": [20, 0],
        }
    )
    assert_frame_equal(found, expected)
