from dataclasses import replace

import polars as pl

from layerscope.report import Column, Kind, Table
from layerscope.report.median_passes import MedianPass, Row, Stretch, drawn_passes
from layerscope.run import Run
from tests import handmade

COLUMNS = (
    Column("region", "region", Kind.REGION),
    Column("share_ns", "share", Kind.TIME),
    Column("gap_ns", "gap", Kind.TIME),
    Column("hidden_ns", "hidden", Kind.TIME),
)


def test_an_arm_with_an_overlap() -> None:
    """Gaps, the hidden part of a kernel and the rest of it are those on paper."""
    reference, fused = drawn_passes(handmade.run())
    assert reference.title == "reference, 3 kernels"
    assert fused == MedianPass(
        arm="fused",
        increment_ns=30_500,
        kernels=3,
        rows=(
            Row(
                "attention",
                (Stretch("gap", 0, 1_000), Stretch("kernel", 1_000, 16_000)),
            ),
            Row(
                "o_proj_all_reduce",
                (
                    Stretch("hidden", 15_000, 16_000),
                    Stretch("kernel", 16_000, 20_000),
                ),
            ),
            Row(
                "moe",
                (Stretch("gap", 20_000, 20_500), Stretch("kernel", 20_500, 30_500)),
            ),
        ),
        table=Table(
            title="fused, the median pass",
            columns=COLUMNS,
            rows=(
                ("attention", 16_000, 1_000, 0),
                ("o_proj_all_reduce", 4_000, 0, 1_000),
                ("moe", 10_500, 500, 0),
                ("total", 30_500, 1_500, 1_000),
            ),
            has_total=True,
        ),
    )


def altered(**values: pl.Expr) -> Run:
    """The hand-made run with other kernels of the second arm."""
    made = handmade.run()
    fused = pl.col("arm") == "fused"
    kernels = made.kernels.with_columns(
        pl.when(fused).then(value).otherwise(pl.col(name)).alias(name)
        for name, value in values.items()
    )
    return replace(made, kernels=kernels)


def test_kernels_of_a_region_that_overlap_have_rows_of_their_own() -> None:
    """What runs beside another kernel of its region is told in a row below it."""
    (_, fused) = drawn_passes(altered(region=pl.lit("moe")))
    assert [(row.region, len(row.stretches)) for row in fused.rows] == [
        ("moe", 4),
        ("moe", 2),
    ]
    assert fused.rows[1].stretches == (
        Stretch("hidden", 15_000, 16_000),
        Stretch("kernel", 16_000, 20_000),
    )


def test_a_kernel_of_no_length_is_there() -> None:
    """A kernel that took no time is a stretch of no length, so that it is counted."""
    is_project = pl.col("name") == "project"
    short = pl.when(is_project).then(0).otherwise(pl.col("duration_ns"))
    late = pl.when(is_project).then(17_000).otherwise(pl.col("start_ns"))
    (_, fused) = drawn_passes(altered(duration_ns=short, start_ns=late))
    assert fused.rows[1].stretches == (
        Stretch("gap", 16_000, 18_000),
        Stretch("kernel", 18_000, 18_000),
    )


def test_without_kernels_there_is_no_pass() -> None:
    """A run of which nothing was recorded has none to draw."""
    made = handmade.run()
    assert drawn_passes(replace(made, kernels=made.kernels.clear())) == ()
