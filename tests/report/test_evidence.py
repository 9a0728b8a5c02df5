from dataclasses import replace

import polars as pl

from layerscope.run import Run
from tests import handmade
from tests.report.run_evidence import of_captures, of_kernels

LAUNCH = ("132 × 1 × 1", "256 × 1 × 1")


def without(run: Run) -> Run:
    """`run` before anything of it was measured."""
    return Run(run.header, run.samples.clear(), run.kernels.clear(), run.path)


def test_the_kernels_of_the_median_pass() -> None:
    """Every kernel of every arm but the A/A arm, with what a pass adds up to."""
    reference, fused = of_kernels(handmade.run())
    assert reference.title == "kernels of reference, the median pass"
    assert [column.title for column in reference.columns] == [
        *("kernel", "region", "role", "grid", "block", "stream"),
        *("start", "duration", "gap before", "hidden"),
    ]
    assert reference.rows == (
        ("attend", "attention", None, *LAUNCH, 7, 2_000, 20_000, 2_000, 0),
        ("project", "o_proj_all_reduce", None, *LAUNCH, 7, 23_000, 5_000, 1_000, 0),
        ("experts", "moe", None, *LAUNCH, 7, 28_000, 13_000, 0, 0),
    )
    assert fused.rows == (
        ("attend", "attention", None, *LAUNCH, 7, 1_000, 15_000, 1_000, 0),
        ("project", "o_proj_all_reduce", None, *LAUNCH, 7, 15_000, 5_000, 0, 1_000),
        ("experts", "moe", None, *LAUNCH, 7, 20_500, 10_000, 500, 0),
    )


def test_anchors_by_capture() -> None:
    """One row a capture, arms in the order of the study, the A/A arm last."""
    (table,) = of_captures(handmade.run())
    assert table.rows == tuple(
        (arm, capture, 6, pass_ns, pass_ns, pass_ns)
        for arm, pass_ns in handmade.PASS_NS.items()
        for capture in range(3)
    )


def test_a_launch_that_was_not_recorded() -> None:
    """Operators of a CPU have neither grid nor block, and no half of one is told."""
    made = handmade.run()
    unknown = pl.lit(None, pl.Int64)
    kernels = made.kernels.with_columns(grid_y=unknown, block_x=unknown)
    table, _ = of_kernels(replace(made, kernels=kernels))
    assert {row[3:5] for row in table.rows} == {(None, None)}


def test_nothing_was_measured() -> None:
    """A run without rows has no such tables."""
    run = without(handmade.run())
    assert of_kernels(run) == []
    assert of_captures(run) == []


def test_an_arm_that_was_not_recorded() -> None:
    """Only arms with kernels have a table."""
    run = handmade.run()
    kernels = run.kernels.filter(pl.col("arm") == "fused")
    found = of_kernels(Run(run.header, run.samples, kernels, run.path))
    assert [table.title for table in found] == ["kernels of fused, the median pass"]
