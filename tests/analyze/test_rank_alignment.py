from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import polars as pl
from hypothesis import given
from polars.testing import assert_frame_equal

from layerscope.analyze.rank_alignment import RankKernels, align_ranks
from layerscope.analyze.rank_waits import COLLECTIVES, RANKS
from tests.analyze.jobs import Planted, job

CLOCKS_NS = (0, 5_000_000, -123_456_789)
PLANTED = (
    Planted([1_000, 1_000, 9_000], 10_000),
    Planted([20_000, 24_000, 21_000], 25_500),
    Planted([40_000, 30_000, 30_000], 41_000),
    Planted([50_000, 50_000, 50_000], 51_000),
)


def frame(rows: Sequence[Sequence[Any]], schema: Any) -> pl.DataFrame:  # noqa: ANN401
    """A frame of rows as they are written down."""
    return pl.DataFrame(rows, schema=schema, orient="row")


def test_planted_clocks_and_skews_are_found_exactly() -> None:
    """Offsets, waits and transfers are those that were planted, to the nanosecond."""
    found = align_ranks(job(PLANTED, CLOCKS_NS))
    assert_frame_equal(
        found.ranks,
        frame(
            [
                # of equally late ranks, the first counts
                (0, 0, 0, 4, 4, 2, 16_500, 12_000, 4_500, 0),
                (1, 5_000_000, 0, 4, 4, 1, 22_500, 18_000, 4_500, 0),
                (2, -123_456_789, 0, 4, 4, 1, 17_500, 13_000, 4_500, 0),
            ],
            RANKS,
        ),
    )
    assert_frame_equal(
        found.collectives,
        frame(
            [
                ("", 0, "all-reduce", 3, 9_000, 8_000, 1_000, 2, 0, None),
                ("", 1, "all-reduce", 3, 24_000, 4_000, 1_500, 1, 0, None),
                ("", 2, "all-reduce", 3, 40_000, 10_000, 1_000, 0, 0, None),
                ("", 3, "all-reduce", 3, 50_000, 0, 1_000, 0, 0, None),
            ],
            COLLECTIVES,
        ),
    )
    assert (found.unaligned, found.incomplete, found.error_ns) == ((), 0, 0)


def test_the_error_is_what_ends_differ_by() -> None:
    """One end that is off moves no clock, and is told as spread and error."""
    ranks = job(PLANTED, (0, 0))
    is_last = pl.col("start_ns") == 50_000
    longer = pl.col("duration_ns") + pl.when(is_last).then(600).otherwise(0)
    late = RankKernels(1, ranks[1].kernels.with_columns(duration_ns=longer))
    found = align_ranks([ranks[0], late])
    assert found.ranks["offset_ns"].to_list() == [0, 0]
    assert found.collectives["end_spread_ns"].to_list() == [0, 0, 0, 600]
    assert found.error_ns == 300


def test_collectives_that_some_ranks_lack_are_left_out() -> None:
    """A trace that begins later lacks the first ones; they are counted."""
    planted = [Planted([500, -1, 700], 900), *PLANTED]
    found = align_ranks(job(planted, CLOCKS_NS))
    assert found.ranks["offset_ns"].to_list() == list(CLOCKS_NS)
    assert found.collectives["number"].to_list() == [0, 1, 2, 3]
    assert found.incomplete == 1


def test_ranks_are_aligned_over_groups_that_they_share() -> None:
    """Rank 2 shares nothing with rank 0, but with rank 1, which does."""
    planted = [
        Planted([10, 20], 30, group="a"),
        Planted([100, 130], 140, group="a"),
        Planted([-1, 200, 210], 230, group="b"),
    ]
    found = align_ranks(job(planted, CLOCKS_NS))
    assert found.ranks["offset_ns"].to_list() == list(CLOCKS_NS)
    assert found.collectives.select("group", "ranks", "skew_ns").rows() == [
        ("a", 2, 10),
        ("a", 2, 30),
        ("b", 2, 10),
    ]


def test_a_rank_that_shares_nothing_is_not_aligned() -> None:
    """It is named, and in no table."""
    planted = [Planted([10, 20], 30, group="a"), Planted([-1, -1, 5], 9, group="b")]
    found = align_ranks(job(planted, CLOCKS_NS))
    assert found.ranks["rank"].to_list() == [0, 1]
    assert found.unaligned == (2,)


def test_sends_align_nothing_unless_told_an_all_to_all() -> None:
    """From one rank of a pipeline to the next, they end when they like."""
    sends = [Planted([0, 50], 60, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t")]
    found = align_ranks(job(sends, (0, 0)))
    assert (found.unaligned, found.sends) == ((0, 1), 2)
    told = align_ranks(job([sends[0]._replace(collective="all_to_all")], (0, 0)))
    assert (told.unaligned, told.sends) == ((), 0)
    assert told.collectives["skew_ns"].to_list() == [50]


def test_unnamed_groups_of_two_streams_are_matched_apart() -> None:
    """In each, the order of the ranks is the same; across both it need not be."""
    planted = [
        Planted([1_000, 2_000], 3_100),
        Planted([10_000, 11_500], 13_000),
        Planted([12_000, 10_500], 14_000),
        Planted([20_000, 25_000], 26_000),
    ]
    is_other = pl.col("duration_ns").is_in([2_000, 3_500])  # of the third one
    stream = pl.when(is_other).then(203).otherwise(84).cast(pl.Int64)
    ranks = [
        RankKernels(each.rank, each.kernels.with_columns(stream=stream))
        for each in job(planted, (0, 7_000_000))
    ]
    found = align_ranks(ranks)
    assert found.collectives.select(
        "group", "number", "skew_ns", "late_rank"
    ).rows() == [
        ("stream 203", 0, 1_500, 0),
        ("stream 84", 0, 1_000, 1),
        ("stream 84", 1, 1_500, 1),
        ("stream 84", 2, 5_000, 1),
    ]
    assert found.ranks["offset_ns"].to_list() == [0, 7_000_000]


def test_broadcasts_align_nothing() -> None:
    """Their root may end before the others have begun."""
    found = align_ranks(job([Planted([0, 50], 60, "ncclKernel_Broadcast")], (0, 0)))
    assert found.collectives.is_empty()
    assert found.ranks.is_empty()
    assert found.unaligned == (0, 1)


def test_no_ranks_are_no_error() -> None:
    """Nothing gives nothing."""
    found = align_ranks([])
    assert_frame_equal(found.ranks, frame([], RANKS))
    assert_frame_equal(found.collectives, frame([], COLLECTIVES))
    assert found.error_ns == 0


@given(
    clocks_ns=st.lists(st.integers(-(10**15), 10**15), min_size=1, max_size=4),
    planted=st.lists(
        st.tuples(
            st.lists(st.integers(0, 10**6), min_size=5, max_size=5),
            st.integers(1, 10**6),
        ),
        min_size=1,
        max_size=8,
    ),
)
def test_waits_and_transfers_add_up(
    clocks_ns: list[int], planted: list[tuple[list[int], int]]
) -> None:
    """Whatever the clocks: they are found, and no nanosecond of a kernel is lost."""
    collectives, now_ns = [], 0
    for late_ns, transfer_ns in planted:
        arrivals = [now_ns + late for late in late_ns[: len(clocks_ns) + 1]]
        collectives.append(Planted(arrivals, max(arrivals) + transfer_ns))
        now_ns = collectives[-1].end_ns + 1_000
    ranks = job(collectives, [0, *clocks_ns])
    found = align_ranks(ranks)
    sums = [
        int(each.kernels.filter(pl.col("name") != "gemm")["duration_ns"].sum())
        for each in ranks
    ]
    assert found.ranks["offset_ns"].to_list() == [0, *clocks_ns]
    assert found.ranks["duration_ns"].to_list() == sums
    assert (found.ranks["wait_ns"] + found.ranks["transfer_ns"]).to_list() == sums
    assert found.collectives["transfer_ns"].to_list() == [each[1] for each in planted]
    assert found.collectives["end_spread_ns"].to_list() == [0] * len(planted)
