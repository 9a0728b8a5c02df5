"""The tables of a report on a trace: steps, layers, overlaps and gaps."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import polars as pl

from layerscope.analyze.stream_overlaps import overlap_edges, stream_overlaps
from layerscope.analyze.swept_trace import SweptTrace
from layerscope.analyze.trace_gaps import gaps_by_owner
from layerscope.analyze.trace_shares import (
    in_steps,
    region_shares,
    step_parts,
    step_shares,
)
from layerscope.analyze.trace_verdict import StepVerdict
from layerscope.report.distinct_names import distinct_names
from layerscope.report.document import Cell, Column, Kind, Table
from layerscope.report.trace_facts import step_words, verdict_of
from layerscope.schema import UNASSIGNED

TOP: Final = 10
"""Rows of tables that name kernels."""

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
_SHORT: Final = 20  # of names beside many columns
_SHORTEST: Final = 20  # of two names beside many columns


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
    """The mean step of every kind by region, in layers and outside them.

    Of the whole device where there are no steps.
    """
    parts = step_parts(region_shares(own))
    has_steps = own["step"].is_not_null().any()
    for (kind, steps), rows in parts.group_by(
        "step_kind", "steps", maintain_order=True
    ):
        step = step_words(_text(kind), 1).removeprefix("1 ")
        words = step if has_steps else "whole device"
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
        (verdict_of(each), part.value, value, value / each.whole_ns)
        for each in found
        for part, value in each.parts.items()
    ]
    if rows:
        yield Table("where the time goes", _VERDICT, tuple(rows))


def overlap_table(swept: SweptTrace, own: pl.DataFrame) -> Iterator[Table]:
    """Overlaps of kernels of one stream, if there are any that can be trusted."""
    if swept.trust.why_no_overlap:
        return
    edges = overlap_edges(stream_overlaps(own, swept.architectures()))
    if edges.is_empty():
        return
    shown = edges.head(TOP)
    names = distinct_names([*shown["producer"], *shown["name"]], _SHORTEST)
    yield Table(
        title=f"overlap on one stream{first_of(edges.height)}",
        columns=OVERLAPS,
        rows=tuple(
            (
                f"{names[row['producer']]} → {names[row['name']]}",
                *_cells(row, OVERLAPS[1:]),
            )
            for row in shown.iter_rows(named=True)
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
    shown = owners.head(TOP)
    names = distinct_names(shown["name"], _SHORT)
    yield Table(
        title=f"gaps by the kernel that ends them{first_of(owners.height)}",
        columns=_GAPS,
        rows=tuple(
            (names[row["name"]], *_cells(row, _GAPS[1:]))
            for row in shown.iter_rows(named=True)
        ),
    )


def unassigned_table(own: pl.DataFrame) -> Iterator[Table]:
    """What is of no known region and takes most, if there is any.

    Of steps, where there are any: what of them is unassigned adds up to all of this.
    """
    stepped = own.filter(pl.col("step").is_not_null())
    where = f", in {step_words(None, stepped['step'].n_unique())}"
    if stepped.is_empty():
        stepped, where = own, ""
    unknown = (
        stepped.filter(pl.col("region") == UNASSIGNED)
        .group_by("name", maintain_order=True)
        .agg(kernels=pl.len(), duration_ns=pl.col("duration_ns").sum())
        .sort("duration_ns", descending=True, maintain_order=True)
    )
    if unknown.is_empty():
        return
    shown = unknown.head(TOP)
    names = distinct_names(shown["name"])
    yield Table(
        title=f"kernels of no known region{where}{first_of(unknown.height)}",
        columns=UNPLACED,
        rows=tuple(
            (names[row["name"]], *_cells(row, UNPLACED[1:]))
            for row in shown.iter_rows(named=True)
        ),
    )


def first_of(rows: int) -> str:
    """That a table has the first rows only, where that is so."""
    return f", the first {TOP} of {rows}" if rows > TOP else ""


def _cells(row: dict[str, Any], columns: tuple[Column, ...]) -> tuple[Cell, ...]:
    return tuple(row[column.key] for column in columns)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
