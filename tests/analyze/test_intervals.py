import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.analyze.intervals import sweep

Interval = tuple[int, int, int]  # line, start, duration

INTERVALS = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(0, 15)),
    min_size=1,
    max_size=25,
)


def frame(intervals: list[Interval]) -> pl.DataFrame:
    """Intervals as `sweep` takes them, numbered in their order."""
    return pl.DataFrame(
        [
            (line, start, start + duration, node)
            for node, (line, start, duration) in enumerate(intervals)
        ],
        schema=["line", "start_ns", "end_ns", "node"],
        orient="row",
    )


def test_overlaps_nesting_gaps_and_ties() -> None:
    """Each interval is split by the latest end of those before it."""
    intervals = pl.DataFrame(
        {
            "line": [0] * 7,
            "start_ns": [5, 5, 8, 14, 20, 20, 9],
            "end_ns": [10, 10, 14, 14, 20, 25, 10],
            "node": [1, 0, 2, 4, 6, 5, 3],
        }
    )
    assert_frame_equal(
        sweep(intervals, ["line"]),
        pl.DataFrame(
            {
                "line": [0] * 7,
                "start_ns": [5, 5, 8, 9, 14, 20, 20],
                "end_ns": [10, 10, 14, 10, 14, 20, 25],
                "node": [0, 1, 2, 3, 4, 6, 5],
                "frontier_ns": [10, 10, 14, 14, 14, 20, 25],
                "gap_ns": [0, 0, 0, 0, 0, 6, 0],
                "exclusive_ns": [5, 0, 4, 0, 0, 0, 5],
            }
        ),
    )


def test_lines_do_not_touch_each_other() -> None:
    """The first interval of a line has no gap, whatever the line before it held."""
    swept = sweep(frame([(0, 0, 10), (1, 50, 5), (1, 57, 1)]), ["line"])
    assert swept["gap_ns"].to_list() == [0, 0, 2]
    assert swept["exclusive_ns"].to_list() == [10, 5, 1]


@given(INTERVALS)
def test_exclusive_times_add_up_to_the_union(intervals: list[Interval]) -> None:
    """Exclusive times are the union's length, and with the gaps the makespan."""
    sums = (
        sweep(frame(intervals), ["line"])
        .group_by("line")
        .agg(
            pl.col("gap_ns", "exclusive_ns").sum(),
            makespan_ns=pl.col("end_ns").max() - pl.col("start_ns").min(),
        )
    )
    for line, gap_ns, exclusive_ns, makespan_ns in sums.iter_rows():
        covered = {
            instant
            for other, start, duration in intervals
            if other == line
            for instant in range(start, start + duration)
        }
        assert exclusive_ns == len(covered)
        assert gap_ns + exclusive_ns == makespan_ns


@given(INTERVALS)
def test_parts_are_within_their_interval(intervals: list[Interval]) -> None:
    """No gap is negative, and no interval moves the frontier by over its length."""
    swept = sweep(frame(intervals), ["line"])
    assert swept["gap_ns"].min() >= 0  # type: ignore[operator]
    lengths = swept["end_ns"] - swept["start_ns"]
    assert swept["exclusive_ns"].is_between(0, lengths).all()
