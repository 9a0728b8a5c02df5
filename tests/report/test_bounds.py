import msgspec

from layerscope.report import Interval, Table, build_report
from layerscope.run import Run
from tests import edited, handmade


def distances(run: Run) -> list[Table]:
    """The tables of distances to bounds."""
    return [
        table
        for table in build_report(run).tables
        if table.title.startswith("distance to bounds")
    ]


def test_every_arm_is_a_multiple_of_every_bound() -> None:
    """40,000 and 30,000 ns over each; the A/A arm is left out."""
    (table,) = distances(edited.run())
    assert [column.key for column in table.columns] == [
        *("chain", "bound", "pass_ns", "kernels", "bytes"),
        *("reference_over_bound", "fused_over_bound"),
    ]
    size = (3, 6_000_000)
    assert table.rows == (
        (
            "standard chain", "no PDL", Interval(20_000, 19_900, 20_100),
            *size, 2.0, 1.5,
        ),
        (
            "standard chain", "legal early start", Interval(12_000, 11_900, 12_100),
            *size, 40 / 12, 2.5,
        ),
        (
            "standard chain", "one read", Interval(8_000, 7_900, 8_100),
            *size, 5.0, 3.75,
        ),
    )  # fmt: skip


def test_bounds_of_an_arms_own_kernels_are_that_arms_alone() -> None:
    """Another arm's kernels say nothing of it."""
    own = [msgspec.structs.replace(edited.BOUNDS[0], arm="fused")]
    (table,) = distances(edited.run(bounds=own))
    assert table.rows[0][:2] == ("fused", "no PDL")
    assert table.rows[0][-2:] == (None, 1.5)


def test_without_bounds_there_is_no_table() -> None:
    """Runs of older formats have none, and no curve of reads."""
    assert distances(handmade.run()) == []
    assert not any("cold reads" in note for note in build_report(handmade.run()).notes)


def test_the_curve_of_cold_reads_is_a_note() -> None:
    """Sizes, times and what that makes a second."""
    assert (
        "cold reads of one kernel, its launch included: 1.000 MB in 2.000 µs (0.50 "
        "TB/s), 4.000 MB in 4.000 µs (1.00 TB/s)"
    ) in build_report(edited.run()).notes
