"""The tables of a report on a trace: steps, layers, overlaps and gaps."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from layerscope.analyze.stream_overlaps import overlap_edges, stream_overlaps
from layerscope.analyze.swept_trace import SweptTrace
from layerscope.analyze.trace_gaps import gaps_by_owner
from layerscope.analyze.trace_shares import (
    in_steps,
    layer_medians,
    region_shares,
    step_parts,
    step_shares,
)
from layerscope.analyze.trace_verdict import StepVerdict
from layerscope.report.document import Cell, Column, Kind, Table
from layerscope.report.kernel_names import short_kernel_name
from layerscope.report.trace_facts import step_words, verdict_of
from layerscope.schema import UNASSIGNED

TOP: Final = 10
"""Rows of tables that name kernels."""

MOST_VARIANTS: Final = 4
"""Variants of layers that have a table each."""

WORTH: Final = 0.01
"""Share of all gaps from which those that kernels of one name end have a row."""

_KERNELS: Final = Column("kernels", "kernels", Kind.COUNT)
_SHARE: Final = Column("share_ns", "share", Kind.TIME)
_PARTS: Final = (
    Column("gap_ns", "gap", Kind.TIME),
    Column("duration_ns", "sum", Kind.TIME),
    Column("hidden_ns", "hidden", Kind.TIME),
)
_STEPS: Final = (
    Column("step_kind", "steps", Kind.TEXT),
    Column("layers", "layers", Kind.COUNT),
    _KERNELS,
    Column("share_ns", "median", Kind.TIME),
    Column("shortest_ns", "shortest", Kind.TIME),
    Column("longest_ns", "longest", Kind.TIME),
    Column("gap_ns", "gaps", Kind.TIME),
    Column("before_ns", "gap before", Kind.TIME),
)
_STEP_PARTS: Final = (
    Column("region", "region", Kind.REGION),
    Column("where", "where", Kind.TEXT),
    *(_KERNELS, _SHARE, *_PARTS),
)
_LAYER: Final = (
    Column("region", "region", Kind.REGION),
    *(_KERNELS, _SHARE),
    Column("mean_share_ns", "mean share", Kind.TIME),
    *_PARTS,
)
OVERLAPS: Final = (
    Column("edge", "from → to", Kind.TEXT),
    Column("region", "region", Kind.REGION),
    Column("kind", "kind", Kind.TEXT),
    Column("overlapping", "overlap", Kind.COUNT),
    Column("of", "of", Kind.COUNT),
    Column("median_ns", "median", Kind.TIME),
    Column("largest_ns", "largest", Kind.TIME),
)
_GAPS: Final = (
    Column("kernel", "kernel", Kind.TEXT),
    Column("region", "region", Kind.REGION),
    Column("cause", "why", Kind.TEXT),
    Column("gaps", "gaps", Kind.COUNT),
    Column("gap_ns", "in all", Kind.TIME),
    Column("median_ns", "median", Kind.TIME),
    Column("largest_ns", "largest", Kind.TIME),
)
UNPLACED: Final = (
    Column("kernel", "kernel", Kind.TEXT),
    _KERNELS,
    Column("duration_ns", "sum", Kind.TIME),
)
_VERDICT: Final = (
    Column("steps", "of", Kind.TEXT),
    Column("part", "goes to", Kind.TEXT),
    Column("time_ns", "time", Kind.TIME),
    Column("share", "share", Kind.RATIO),
)
_TELLING: Final = (
    Column("variant", "variant", Kind.TEXT),
    Column("region", "region", Kind.REGION),
    Column("kernel", "kernel", Kind.TEXT),
)
_LONG: Final = 60  # of names that differ late
_SHORT: Final = 20  # of names beside many columns
_SHORTEST: Final = 20  # of two names beside many columns
_WHOLE: Final = "whole layer"


def step_table(own: pl.DataFrame) -> Iterator[Table]:
    """Steps by kind, if there are any; times are medians."""
    steps = step_shares(own)
    if steps.is_empty():
        return
    share = pl.col("share_ns")
    rows = (
        steps.group_by("step_kind", maintain_order=True)
        .agg(
            pl.len().alias("steps"),
            pl.col("layers", "kernels").median(),
            share.median(),
            share.min().alias("shortest_ns"),
            share.max().alias("longest_ns"),
            pl.col("gap_ns", "before_ns").median(),
        )
        .iter_rows(named=True)
    )
    yield Table(
        title="steps; gaps before them are apart",
        columns=_STEPS,
        rows=tuple(
            (
                step_words(row["step_kind"], row["steps"]),
                *_cells(row, _STEPS[1:]),
            )
            for row in rows
        ),
    )


def part_tables(own: pl.DataFrame) -> Iterator[Table]:
    """The mean step of every kind by region, in layers and outside them."""
    parts = step_parts(region_shares(own))
    for (kind, steps), rows in parts.group_by(
        "step_kind", "steps", maintain_order=True
    ):
        words = step_words(_text(kind), 1).removeprefix("1 ")
        sums = rows.select("kernels", "share_ns", "gap_ns", "duration_ns", "hidden_ns")
        mean = f", mean of {steps}" if steps != 1 else ""
        yield Table(
            title=f"{words} by region{mean}",
            columns=_STEP_PARTS,
            rows=(
                *(
                    (
                        row["region"],
                        "layers" if row["is_in_layer"] else "outside",
                        *_cells(row, _STEP_PARTS[2:]),
                    )
                    for row in rows.iter_rows(named=True)
                ),
                ("total", None, *sums.sum().row(0)),
            ),
            has_total=True,
        )


def verdict_table(found: Sequence[StepVerdict]) -> Iterator[Table]:
    """What the time of steps goes to, kind by kind; adds up to their time."""
    rows = [
        (
            verdict_of(each),
            part.value,
            value,
            value / each.whole_ns,
        )
        for each in found
        for part, value in each.parts.items()
    ]
    if rows:
        yield Table("where the time goes", _VERDICT, tuple(rows))


def layer_tables(own: pl.DataFrame) -> Iterator[Table]:
    """Layers by variant, in steps of every kind, by region; medians.

    Of the variants that most layers are of.
    """
    medians = layer_medians(region_shares(own))
    for (kind,), of_kind in medians.group_by("step_kind", maintain_order=True):
        words = step_words(_text(kind), 1).removeprefix("1 ")
        counts = of_kind.group_by("variant", maintain_order=True).agg(
            pl.col("layers").first()
        )
        most = counts.sort("layers", descending=True, maintain_order=True).head(
            MOST_VARIANTS
        )
        for variant in most["variant"].sort():
            rows = of_kind.filter(pl.col("variant").eq_missing(pl.lit(variant)))
            named = f" {variant}" if counts.height > 1 else ""
            layers = rows["layers"][0]
            over = f"median of {layers}" if layers > 1 else "the only one"
            yield Table(
                title=f"layer{named} of a {words} by region, {over}",
                columns=_LAYER,
                rows=tuple(
                    (row["region"] or _WHOLE, *_cells(row, _LAYER[1:]))
                    for row in rows.iter_rows(named=True)
                ),
            )


def variant_table(own: pl.DataFrame) -> Iterator[Table]:
    """The kernels by which variants of layers differ; none of one variant."""
    layers = own.filter(pl.col("variant").is_not_null())
    number = layers["variant"].n_unique()
    short = {name: short_kernel_name(name, _LONG) for name in layers["name"].unique()}
    telling = (
        layers.with_columns(name=pl.col("name").replace_strict(short))
        .group_by("variant", "name", maintain_order=True)
        .agg(pl.col("region").first())
        .filter(pl.len().over("name") < number)
        .sort("variant", maintain_order=True)
    )
    if telling.is_empty():
        return
    yield Table(
        title=f"kernels that not all variants of layers have{_first(telling.height)}",
        columns=_TELLING,
        rows=tuple(telling.select("variant", "region", "name").head(TOP).rows()),
    )


def overlap_table(swept: SweptTrace, own: pl.DataFrame) -> Iterator[Table]:
    """Overlaps of kernels of one stream, if there are any that can be trusted."""
    if swept.trust.why_no_overlap:
        return
    edges = overlap_edges(stream_overlaps(own, swept.architectures()))
    if edges.is_empty():
        return
    yield Table(
        title=f"overlap on one stream{_first(edges.height)}",
        columns=OVERLAPS,
        rows=tuple(
            (
                _edge(row["producer"], row["name"]),
                *_cells(row, OVERLAPS[1:]),
            )
            for row in edges.head(TOP).iter_rows(named=True)
        ),
    )


def gap_table(own: pl.DataFrame) -> Iterator[Table]:
    """The gaps that add up to most, by the kernel that ends them.

    Of those in and between steps, where there are any.
    """
    owners = gaps_by_owner(in_steps(own))
    least = WORTH * int(owners["gap_ns"].sum())
    owners = owners.filter(pl.col("gap_ns") >= least)
    if owners.is_empty():
        return
    yield Table(
        title=f"gaps by the kernel that ends them{_first(owners.height)}",
        columns=_GAPS,
        rows=tuple(
            (short_kernel_name(row["name"], _SHORT), *_cells(row, _GAPS[1:]))
            for row in owners.head(TOP).iter_rows(named=True)
        ),
    )


def unassigned_table(own: pl.DataFrame) -> Iterator[Table]:
    """Kernels of no known region that take most, if there are any."""
    unknown = (
        own.filter(pl.col("region") == UNASSIGNED, pl.col("kind") == "kernel")
        .group_by("name", maintain_order=True)
        .agg(kernels=pl.len(), duration_ns=pl.col("duration_ns").sum())
        .sort("duration_ns", descending=True, maintain_order=True)
    )
    if unknown.is_empty():
        return
    yield Table(
        title=f"kernels of no known region{_first(unknown.height)}",
        columns=UNPLACED,
        rows=tuple(
            (short_kernel_name(row["name"]), *_cells(row, UNPLACED[1:]))
            for row in unknown.head(TOP).iter_rows(named=True)
        ),
    )


def _first(rows: int) -> str:
    """That a table has the first rows only, where that is so."""
    return f", the first {TOP} of {rows}" if rows > TOP else ""


def _edge(producer: str, consumer: str) -> str:
    names = (short_kernel_name(each, _SHORTEST) for each in (producer, consumer))
    return " → ".join(names)


def _cells(row: dict[str, Any], columns: tuple[Column, ...]) -> tuple[Cell, ...]:
    return tuple(row[column.key] for column in columns)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
