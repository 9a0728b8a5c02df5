import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.analyze.tracks import with_tracks

SCHEMA = {
    "stream": pl.Int64(),
    "node": pl.Int64(),
    "start_ns": pl.Int64(),
    "end_ns": pl.Int64(),
}


def intervals(*rows: tuple[int | None, int, int, int]) -> pl.DataFrame:
    """Rows of (stream, node, start, end)."""
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def test_overlapping_intervals_get_tracks_of_their_own() -> None:
    """The first free track is taken; touching is no overlap; times stay."""
    given_rows = intervals(
        (7, 3, 25, 30), (7, 0, 0, 10), (7, 1, 5, 20), (7, 2, 10, 15), (8, 4, 5, 20)
    )
    tracked = intervals(
        (7, 0, 0, 10), (7, 1, 5, 20), (7, 2, 10, 15), (7, 3, 25, 30), (8, 4, 5, 20)
    ).with_columns(track=pl.Series([0, 1, 0, 0, 0], dtype=pl.Int64))
    assert_frame_equal(with_tracks(given_rows, ["stream"]), tracked)


def test_lines_without_a_stream_are_one_line() -> None:
    """Operators of a CPU have no stream, and are told apart like any others."""
    tracked = with_tracks(intervals((None, 0, 0, 10), (None, 1, 5, 20)), ["stream"])
    assert tracked["track"].to_list() == [0, 1]


def test_no_intervals_have_no_tracks() -> None:
    """A frame without rows gets the column all the same."""
    assert with_tracks(intervals(), ["stream"]).schema == SCHEMA | {"track": pl.Int64()}


@given(
    st.lists(
        st.tuples(st.integers(1, 2), st.integers(0, 40), st.integers(1, 20)),
        min_size=1,
        max_size=40,
    )
)
def test_no_track_overlaps_and_none_is_wasted(rows: list[tuple[int, int, int]]) -> None:
    """Intervals of a track follow each other, and no line has more than run at once."""
    frame = intervals(
        *(
            (stream, node, start, start + length)
            for node, (stream, start, length) in enumerate(rows)
        )
    )
    tracked = with_tracks(frame, ["stream"])
    assert_frame_equal(
        tracked.drop("track"), frame.sort("stream", "start_ns", "end_ns", "node")
    )
    before = pl.col("end_ns").shift(1).over("stream", "track")
    assert tracked.filter(pl.col("start_ns") < before).is_empty()
    for (stream,), line in tracked.partition_by("stream", as_dict=True).items():
        most = max(
            line.filter(pl.col("start_ns") <= time, pl.col("end_ns") > time).height
            for time in line["start_ns"]
        )
        assert line["track"].n_unique() == most, stream
