from collections.abc import Sequence

import polars as pl

from layerscope.analyze.rank_alignment import RankKernels, align_ranks
from layerscope.report import Fact
from layerscope.report.ranks import alignment_report
from tests.analyze.jobs import Planted, job

PLANTED = (
    Planted([1_000, 1_000, 9_000], 10_000),
    Planted([20_000, 24_000, 21_000], 25_500),
)


def test_ranks_and_what_they_wait_for() -> None:
    """Sums of every rank, and of all; waits and transfers are as planted."""
    report = alignment_report(align_ranks(job(PLANTED, (0, 5_000, -7_000))))
    assert report.facts == (
        Fact(
            "ranks",
            "3 on the clock of rank 0, by the ends of 2 collectives; error of the "
            "alignment up to 0 ns",
        ),
        Fact(
            "collectives",
            "30.50 µs over all ranks: 23.00 µs (75.4 %) wait for the last rank, "
            "7.500 µs transfer",
        ),
        Fact("last to come", "rank 1 in 1 of 2"),
    )
    ranks, kinds, worst = report.tables
    assert ranks.rows == (
        ("0", 0, 0, 2, 0, 14_500, 12_000, 2_500, None),
        ("1", 5_000, 0, 2, 1, 10_500, 8_000, 2_500, None),
        ("2", -7_000, 0, 2, 1, 5_500, 3_000, 2_500, None),
        ("total", None, None, 6, 2, 30_500, 23_000, 7_500, None),
    )
    assert kinds.rows == (
        ("all-reduce", None, 3, 2, None, 12_000, 6_000.0, 2_500, 1_250.0, 0.0),
    )
    assert worst.rows == (
        (0, "all-reduce", None, 9_000, 8_000, 1_000, 0, "2"),
        (1, "all-reduce", None, 24_000, 4_000, 1_500, 0, "1"),
    )
    assert report.warnings == ()


def test_what_could_not_be_used_is_told() -> None:
    """Ranks that share nothing, and collectives that some lack."""
    planted = [
        *PLANTED,
        Planted([30_000, -1, 30_000], 31_000),
        Planted([-1, -1, -1, 5], 9, group="b"),
    ]
    warnings = alignment_report(align_ranks(job(planted, (0, 0, 0, 0)))).warnings
    assert warnings == (
        "ranks that share no collective with the others, not aligned: 3",
        "1 collective that not all ranks of a group have are left out",
    )


def test_ranks_without_collectives_are_not_aligned() -> None:
    """That is said, and no table pretends otherwise."""
    report = alignment_report(align_ranks(job([], (0, 0))))
    assert report.tables == ()
    (fact,) = report.facts
    assert fact.text == (
        "no collective that synchronises is in all ranks of its group: not aligned"
    )
    assert report.warnings == ()


def test_sends_and_receives_are_not_taken_for_an_all_to_all() -> None:
    """Two of 128 ranks that only send: nothing is aligned, and both is said."""
    sends = [Planted([0, 50], 60, "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t")]
    report = alignment_report(align_ranks(job(sends, (0, 0))), 128)
    assert report.tables == ()
    absent, unused = report.warnings
    assert absent == "2 of 128 ranks given: what these wait for is not all there"
    assert unused == (
        "2 sends and receives are not used: no trace tells whether they are of an "
        "all-to-all, which synchronises, or not"
    )


def test_waits_for_absent_ranks_are_told_as_transfer() -> None:
    """Nobody knows when a rank came that was not given."""
    report = alignment_report(align_ranks(job(PLANTED, (0, 0, 0))), 4)
    assert report.facts[1].text == (
        "30.50 µs over all ranks: 23.00 µs (75.4 %) wait for the last of these ranks, "
        "7.500 µs transfer or wait for absent ranks"
    )
    assert report.warnings == (
        "3 of 4 ranks given: waits for absent ranks are told as transfer",
    )


def with_a_late_end(planted: Sequence[Planted], late_ns: int) -> list[RankKernels]:
    """Two ranks; the first collective of rank 1 ends so much later than it did."""
    rank, other = job(planted, (0, 0))
    is_first = pl.col("start_ns") == planted[0].arrivals_ns[1]
    longer = pl.col("duration_ns") + pl.when(is_first).then(late_ns).otherwise(0)
    return [rank, RankKernels(1, other.kernels.with_columns(duration_ns=longer))]


def test_what_cannot_be_split_is_unknown() -> None:
    """The end of one rank is off by more than the ranks' arrivals differ."""
    planted = (
        Planted([1_000, 1_200], 10_000),
        Planted([20_000, 29_000], 30_000),
        Planted([40_000, 40_500], 41_000),
    )
    report = alignment_report(align_ranks(with_a_late_end(planted, 600)))
    waits, last = report.facts[1:]
    assert waits.text == (
        "30.90 µs over all ranks: 9.500 µs (30.7 %) wait for the last rank, 3.000 µs "
        "transfer, 18.40 µs unknown"
    )
    assert last.text == "rank 1 in 2 of 2"
    ranks, kinds, worst = report.tables
    assert ranks.rows[-1][-3:] == (9_500, 3_000, 18_400)
    assert kinds.rows == (
        ("all-reduce", None, 2, 3, 2, 9_500, 4_750.0, 1_500, 750.0, 0.0),
    )
    assert [row[0] for row in worst.rows] == [1, 2]
    (warning,) = report.warnings
    assert warning == (
        "1 collective: waiting and transfer are unknown, as the error of the alignment "
        "exceeds the arrival skew"
    )


def test_nothing_is_split_where_nothing_is_known() -> None:
    """No share is told, no last rank, and no table of the largest skews."""
    planted = [Planted([at, at], at + 1_000) for at in (1_000, 3_000, 7_000)]
    report = alignment_report(align_ranks(with_a_late_end(planted, 50)))
    assert [fact.label for fact in report.facts] == ["ranks", "collectives"]
    assert report.facts[1].text == (
        "6.050 µs over all ranks; what of it is waiting, and what transfer, is unknown"
    )
    assert len(report.tables) == 2
    assert report.tables[0].rows[-1][-4:] == (6_050, None, None, 6_050)
