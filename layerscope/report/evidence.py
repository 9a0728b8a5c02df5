"""Tables of what charts draw: kernels of the median pass, and anchors by capture."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from layerscope.analyze.statistics import ANCHOR
from layerscope.experiment import CAPTURED
from layerscope.report.document import Column, Kind, Table
from layerscope.run_header import RunHeader

_KERNELS: Final = (
    Column("name", "kernel", Kind.TEXT),
    Column("region", "region", Kind.REGION),
    Column("role", "role", Kind.TEXT),
    Column("grid", "grid", Kind.TEXT),
    Column("block", "block", Kind.TEXT),
    Column("stream", "stream", Kind.COUNT),
    Column("start_ns", "start", Kind.CHANGE),
    Column("duration_ns", "duration", Kind.TIME),
    Column("gap_ns", "gap before", Kind.TIME),
    Column("hidden_ns", "hidden", Kind.TIME),
)
_CAPTURES: Final = (
    Column("arm", "arm", Kind.TEXT),
    Column("capture", "capture", Kind.COUNT),
    Column("rounds", "rounds", Kind.COUNT),
    Column("lowest_ns", "lowest", Kind.TIME),
    Column("median_ns", "median", Kind.TIME),
    Column("highest_ns", "highest", Kind.TIME),
)


def launch_shape(what: str) -> pl.Expr:
    """A column of texts such as ``132 × 1 × 1``; null where it was not recorded.

    Args:
        what: ``grid`` or ``block``, columns of `schema.KERNELS` without their axis.
    """
    return pl.concat_str([f"{what}_{axis}" for axis in "xyz"], separator=" × ").alias(
        what
    )


def kernel_tables(header: RunHeader, pictured: pl.DataFrame) -> Iterator[Table]:
    """The kernels of every arm's median pass as captured, in order of starts.

    Starts are since the pass began; one before that began beside the pass before. The
    A/A arm, whose kernels are those of the first, has none.

    Args:
        header: of the run.
        pictured: `median_pass.pictured_kernels` of its captured graphs.
    """
    median = pictured.filter(pl.col("place") == 0).with_columns(
        launch_shape("grid"), launch_shape("block")
    )
    for arm in header.study.arms:
        rows = median.filter(pl.col("arm") == arm.name)
        if rows.height:
            yield Table(
                title=f"kernels of {arm.name}, the median pass",
                columns=_KERNELS,
                rows=tuple(rows.select([column.key for column in _KERNELS]).rows()),
            )


def capture_table(header: RunHeader, times: pl.DataFrame) -> Iterator[Table]:
    """The time of a pass by capture, over its rounds; none without a whole round.

    Args:
        header: of the run.
        times: from `pass_times`.
    """
    order = {arm.name: place for place, arm in enumerate(header.study.all_arms)}
    pass_ns = pl.col("pass_ns")
    rows = (
        times.filter(pl.col("phase") == ANCHOR, pl.col("experiment") == CAPTURED)
        .group_by("arm", "capture")
        .agg(
            rounds=pl.len().cast(pl.Int64),
            lowest_ns=pass_ns.min(),
            median_ns=pass_ns.median(),
            highest_ns=pass_ns.max(),
        )
        .sort(pl.col("arm").replace_strict(order, return_dtype=pl.Int64), "capture")
        .select([column.key for column in _CAPTURES])
        .rows()
    )
    if rows:
        yield Table("anchors by capture, over rounds", _CAPTURES, tuple(rows))
