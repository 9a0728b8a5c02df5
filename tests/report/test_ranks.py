from layerscope.analyze.rank_alignment import align_ranks
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
        ("0", 0, 0, 2, 0, 14_500, 12_000, 2_500),
        ("1", 5_000, 0, 2, 1, 10_500, 8_000, 2_500),
        ("2", -7_000, 0, 2, 1, 5_500, 3_000, 2_500),
        ("total", None, None, 6, 2, 30_500, 23_000, 7_500),
    )
    assert kinds.rows == (
        ("all-reduce", None, 3, 2, 12_000, 6_000.0, 2_500, 1_250.0, 0.0),
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
    assert fact.text == "no collective is in all ranks of its group: not aligned"
