"""The kernels of one layer of a trace, one row each."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from layerscope.errors import InputError
from layerscope.report.distinct_names import distinct_names
from layerscope.report.document import Column, Kind, Table
from layerscope.report.trace_facts import step_words

_COLUMNS: Final = (
    Column("position", "", Kind.COUNT),
    Column("region", "region", Kind.REGION),
    Column("role", "role", Kind.TEXT),
    Column("kernel", "kernel", Kind.TEXT),
    Column("gap_ns", "gap", Kind.TIME),
    Column("duration_ns", "time", Kind.TIME),
    Column("hidden_ns", "hidden", Kind.TIME),
    Column("assigned_by", "by", Kind.TEXT),
)
_SHORT: Final = 28  # of names beside many columns


def layer_kernels(own: pl.DataFrame, layer: int) -> Iterator[Table]:
    """The kernels of a layer, in that step of each kind whose layer is the median one.

    Args:
        own: kernels of one device, from `analyze.trace_gaps.gap_causes`.
        layer: which one, from 0.

    Raises:
        InputError: no step has such a layer.
    """
    kernels = own.filter(pl.col("layer") == layer)
    if kernels.is_empty():
        found = own["layer"].drop_nulls().to_list()
        known = f"layers are 0 to {max(found)}" if found else "no layers were found"
        msg = f"there is no layer {layer}; {known}"
        raise InputError(msg)
    times = (
        kernels.group_by("step_kind", "step", maintain_order=True)
        .agg(pl.col("share_ns").sum())
        .sort("share_ns", maintain_order=True)
    )
    for (kind,), steps in times.group_by("step_kind", maintain_order=True):
        step = steps["step"][(steps.height - 1) // 2]
        rows = kernels.filter(pl.col("step") == step)
        of = step_words(kind if isinstance(kind, str) else None, steps.height)
        chosen = f" (of {of}, that of the median layer)" if steps.height > 1 else ""
        yield Table(
            title=f"layer {layer}, variant {rows['variant'][0]}, step {step}{chosen}",
            columns=_COLUMNS,
            rows=tuple(_rows(rows)),
        )


def _rows(kernels: pl.DataFrame) -> Iterator[tuple[str | int | None, ...]]:
    names = distinct_names(kernels["name"], _SHORT)
    for number, row in enumerate(kernels.iter_rows(named=True)):
        place = row["position"]
        yield (
            number if place is None else place,
            row["region"],
            row["role"],
            names[row["name"]],
            row["gap_ns"],
            row["duration_ns"],
            row["hidden_ns"],
            row["assigned_by"],
        )
