from collections.abc import Sequence
from typing import Any

import polars as pl
from polars.testing import assert_frame_equal

from layerscope.analyze.rank_waits import (
    COLLECTIVES,
    RANKS,
    Unsplit,
    judge,
    waits_of_collectives,
    waits_of_ranks,
)

TIMES = {
    "group": pl.String,
    "place": pl.Int64,
    "rank": pl.Int64,
    "collective": pl.String,
    "start_ns": pl.Int64,
    "end_ns": pl.Int64,
}


def judged(*collectives: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """What is known of collectives, given by each rank's start and end."""
    rows = [
        ("tp", place, rank, "all-reduce", start_ns, end_ns)
        for place, times in enumerate(collectives)
        for rank, (start_ns, end_ns) in enumerate(times)
    ]
    return judge(pl.DataFrame(rows, schema=TIMES, orient="row"))


def frame(rows: Sequence[Sequence[Any]], schema: Any) -> pl.DataFrame:  # noqa: ANN401
    """A frame of rows as they are written down."""
    return pl.DataFrame(rows, schema=schema, orient="row")


def offsets(*ranks: int) -> pl.DataFrame:
    """Ranks that are all on one clock."""
    return pl.DataFrame({"rank": ranks, "offset_ns": [0] * len(ranks)})


def test_no_split_where_the_error_exceeds_the_skew() -> None:
    """Ends differ by 40 and the error is 20: skews of 39 are unknown, 40 are known."""
    own = judged(
        ((0, 1_000), (39, 1_040)),
        ((2_000, 3_000), (2_040, 3_040)),
    )
    assert_frame_equal(
        waits_of_collectives(own),
        frame(
            [
                *[("tp", 0, "all-reduce", 2, 39, None, None, None, 40, Unsplit.ERROR)],
                *[("tp", 1, "all-reduce", 2, 2_040, 40, 980, 1, 40, None)],
            ],
            COLLECTIVES,
        ),
    )
    assert_frame_equal(
        waits_of_ranks(own, offsets(0, 1)),
        frame(
            [
                (0, 0, 20, 2, 1, 0, 2_000, 40, 960, 1_000),
                (1, 0, 20, 2, 1, 1, 2_001, 0, 1_000, 1_001),
            ],
            RANKS,
        ),
    )


def test_no_split_where_a_rank_comes_after_another_has_ended() -> None:
    """A transfer would be negative, however large the skew is."""
    own = judged(((0, 1_000), (1_500, 2_600)), ((5_000, 9_000), (8_000, 9_000)))
    assert waits_of_collectives(own)["unsplit"].to_list() == [
        Unsplit.EARLY,
        None,
    ]
    ranks = waits_of_ranks(own, offsets(0, 1))
    assert ranks["transfer_ns"].to_list() == [1_000, 1_000]
    assert ranks["unknown_ns"].to_list() == [1_000, 1_100]


def test_the_error_of_other_ranks_does_not_count() -> None:
    """A group whose own ranks fit is split, whatever those of another are off by."""
    rows = [
        ("a", 0, 0, "all-reduce", 0, 100),
        ("a", 0, 1, "all-reduce", 10, 100),
        ("b", 0, 2, "all-reduce", 0, 100),
        ("b", 0, 3, "all-reduce", 10, 150),
    ]
    own = judge(pl.DataFrame(rows, schema=TIMES, orient="row"))
    found = waits_of_collectives(own)
    assert found.select("group", "skew_ns", "unsplit").rows() == [
        ("a", 10, None),
        ("b", None, Unsplit.ERROR),
    ]


def test_ranks_without_a_whole_collective_have_none() -> None:
    """They are on the clock by others that not all ranks of a group have."""
    ranks = waits_of_ranks(judged(), offsets(4))
    assert_frame_equal(ranks, frame([(4, 0, 0, 0, 0, 0, 0, 0, 0, 0)], RANKS))
