"""Layers of a trace by region and variant, and by what variants differ."""

from collections.abc import Iterator
from typing import Any, Final

import polars as pl

from layerscope.analyze.trace_shares import layer_medians, region_shares
from layerscope.analyze.variant_differences import alike_variants, kernels_by_variant
from layerscope.report.distinct_names import distinct_names
from layerscope.report.document import Cell, Column, Kind, Table
from layerscope.report.table_sets import in_one_unit
from layerscope.report.trace_facts import step_words
from layerscope.report.trace_tables import TOP, first_of

LAYER: Final = (
    Column("region", "region", Kind.REGION),
    Column("kernels", "kernels", Kind.COUNT),
    Column("share_ns", "share", Kind.TIME),
    Column("mean_share_ns", "mean share", Kind.TIME),
    Column("gap_ns", "gap", Kind.TIME),
    Column("duration_ns", "sum", Kind.TIME),
    Column("hidden_ns", "hidden", Kind.TIME),
)
MOST_VARIANTS: Final = 4
"""Variants of layers that have a table each."""

MEDIAN: Final = "median of"
"""What titles of tables say whose times are medians."""

_LONG: Final = 60  # of names that differ late
_WHOLE: Final = "whole layer"


def layer_tables(own: pl.DataFrame) -> Iterator[Table]:
    """Layers by variant, in steps of every kind, by region; medians.

    Of the variants that most layers are of, all in one unit.
    """
    yield from in_one_unit(_layer_tables(own))


def _layer_tables(own: pl.DataFrame) -> Iterator[Table]:
    medians = layer_medians(region_shares(own))
    for (kind,), of_kind in medians.group_by("step_kind", maintain_order=True):
        counts = of_kind.group_by("variant", maintain_order=True).agg(
            pl.col("layers").first()
        )
        for variant in _most(counts):
            rows = of_kind.filter(pl.col("variant").eq_missing(pl.lit(variant)))
            named = f" {variant}" if counts.height > 1 else ""
            layers = rows["layers"][0]
            over = f"{MEDIAN} {layers}" if layers > 1 else "the only one"
            yield Table(
                title=f"layer{named} of a {_step(kind)} by region, {over}",
                columns=LAYER,
                rows=tuple(
                    (row["region"] or _WHOLE, *_cells(row, LAYER[1:]))
                    for row in rows.iter_rows(named=True)
                ),
            )


def variant_tables(own: pl.DataFrame) -> Iterator[Table]:
    """The kernels by which variants of layers differ, kind of steps by kind.

    Of the variants that `layer_tables` shows; none where these run as many of each.
    """
    for kind, layers in _of_several(own):
        counts = kernels_by_variant(layers)
        variants = counts["variant"].unique().sort().to_list()
        wide = counts.pivot(
            "variant", index=["identity", "name", "region"], values="kernels"
        )
        cells = [pl.col(variant).fill_null(0) for variant in variants]
        telling = wide.filter(
            pl.max_horizontal(cells) != pl.min_horizontal(cells)
        ).sort(
            pl.sum_horizontal(pl.col(name).is_null() for name in variants),
            descending=True,
            maintain_order=True,
        )
        if telling.is_empty():
            continue
        shown = telling.head(TOP)
        names = distinct_names(shown["name"], _LONG)
        number = first_of(telling.height)
        yield Table(
            title=f"kernels by which layers of a {_step(kind)} differ{number}",
            columns=(
                Column("region", "region", Kind.REGION),
                Column("kernel", "kernel", Kind.TEXT),
                *(Column(f"variant_{name}", name, Kind.COUNT) for name in variants),
            ),
            rows=tuple(
                (row["region"], names[row["name"]], *(row[name] for name in variants))
                for row in shown.iter_rows(named=True)
            ),
        )


def variant_notes(own: pl.DataFrame) -> Iterator[str]:
    """By what variants differ that run as many of each kernel."""
    for kind, layers in _of_several(own):
        for variant, earlier, difference in alike_variants(layers):
            yield (
                f"layers {variant} of a {_step(kind)} run the kernels of layers "
                f"{earlier} {difference}"
            )


def _of_several(own: pl.DataFrame) -> Iterator[tuple[object, pl.DataFrame]]:
    """The layers of the most common variants, of kinds of steps that have several."""
    layered = own.filter(pl.col("variant").is_not_null())
    for (kind,), layers in layered.group_by("step_kind", maintain_order=True):
        counts = (
            layers.select("step", "layer", "variant")
            .unique(maintain_order=True)
            .group_by("variant", maintain_order=True)
            .agg(layers=pl.len())
        )
        if counts.height > 1:
            yield kind, layers.filter(pl.col("variant").is_in(_most(counts)))


def _most(counts: pl.DataFrame) -> list[str | None]:
    """The variants of most layers, by name."""
    ordered = counts.sort("layers", "variant", descending=[True, False])
    found: list[str | None] = ordered.head(MOST_VARIANTS)["variant"].sort().to_list()
    return found


def _step(kind: object) -> str:
    named = step_words(kind if isinstance(kind, str) else None, 1)
    return named.removeprefix("1 ")


def _cells(row: dict[str, Any], columns: tuple[Column, ...]) -> tuple[Cell, ...]:
    return tuple(row[column.key] for column in columns)
