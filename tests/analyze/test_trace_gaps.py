import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.analyze.trace_gaps import GapCause, gap_causes, gaps_by_owner
from tests.analyze.placed_kernels import Row, kernel, launched

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
            "call": ["cudaLaunchKernel", None],
            "gaps": [2, 1],
            "gap_ns": [70, 10],
            "median_ns": [35.0, 10.0],
            "largest_ns": [40, 10],
            "late_ns": [20, 0],
        }
    )
    assert_frame_equal(found, expected)
