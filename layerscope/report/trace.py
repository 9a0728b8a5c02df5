"""The report on a trace: how far it can be trusted, its layers, what it waits for."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from layerscope.analyze.stream_overlaps import OverlapKind
from layerscope.analyze.swept_trace import SweptTrace
from layerscope.analyze.trace_shares import device_totals
from layerscope.analyze.trace_verdict import Part, StepVerdict, verdicts
from layerscope.errors import InputError
from layerscope.report.document import Column, Fact, Kind, Report, Table
from layerscope.report.table_sets import counting_copies
from layerscope.report.trace_facts import (
    missing_notes,
    trace_facts,
    trust_facts,
    verdict_facts,
)
from layerscope.report.trace_layer import layer_kernels
from layerscope.report.trace_tables import (
    OVERLAPS,
    UNPLACED,
    gap_table,
    overlap_table,
    part_tables,
    step_table,
    unassigned_table,
    verdict_table,
)
from layerscope.report.trace_variants import (
    MEDIAN,
    layer_tables,
    variant_notes,
    variant_tables,
)

_DEVICES: Final = (
    Column("device", "device", Kind.TEXT),
    Column("kernels", "kernels", Kind.COUNT),
    Column("streams", "streams", Kind.COUNT),
    Column("span_ns", "first to last", Kind.TIME),
    Column("busy_ns", "busy", Kind.TIME),
    Column("gap_ns", "gaps", Kind.TIME),
    Column("sum_ns", "sum", Kind.TIME),
)
_SHARES: Final = (
    "a gap, in which nothing ran, counts for the kernel that ends it; hidden is what "
    "ran beside a kernel that began before; share = gap + sum − hidden"
)
_MEDIANS: Final = (
    "medians do not add up, neither over regions nor to share = gap + sum − hidden; "
    "mean shares add up"
)
_PDL: Final = (
    "no trace marks programmatic dependent launches (PDL): neighbours on one stream "
    "that overlap without one being inside the other are consistent with it"
)
_UNKNOWN: Final = (
    "overlap of unknown kind: neither PDL nor branches of one graph explain it, but "
    "time stamps may be as coarse"
)
_SLOWED: Final = (
    "a profiler slows the host down, so launches are late more often than without it"
)
_EITHER: Final = (
    "overlap within a replay may be PDL, or branches of the graph that take turns, "
    "where nothing tells them apart"
)
_RULES: Final = (
    "--rules FILE tells regions by names of kernels, before those known here"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceView:
    """What of a trace is told."""

    device: int | None = None
    """Which one; None for the busiest."""

    step_kind: str | None = None
    """Steps of one kind; None for all of the device."""

    layer: int | None = None
    """The kernels of one layer instead of all tables; None for these."""


def trace_report(swept: SweptTrace, view: TraceView) -> Report:
    """What is told of one trace.

    Args:
        swept: the trace.
        view: what of it.

    Raises:
        InputError: it has no kernels, or not what `view` asks for.
    """
    device, own = seen(swept, view)
    found = verdicts(own, swept.trust)
    if view.layer is not None:
        tables = tuple(layer_kernels(own, view.layer))
        notes: tuple[str, ...] = (_SHARES, *missing_notes([swept]))
    else:
        tables = tuple(_tables(swept, own, found))
        notes = (
            _SHARES,
            *missing_notes([swept]),
            *_layer_notes(tables, own),
            *_notes(tables, found),
        )
        tables = tuple(counting_copies(tables, own["kind"]))
    return Report(
        title=_title(swept, device),
        headlines=_headlines(swept, found),
        facts=tuple(trace_facts(swept, device)),
        tables=(*_device_table(swept, device), *tables),
        notes=notes,
    )


def seen(swept: SweptTrace, view: TraceView) -> tuple[int | None, pl.DataFrame]:
    """The device that is told about, and those of its kernels that are.

    Raises:
        InputError: there are none.
    """
    if swept.kernels.is_empty():
        msg = (
            f"{swept.trace.source.path} has no kernels of a GPU; record one with a "
            "profiler of the device, not of the host alone"
        )
        raise InputError(msg)
    device = _device(swept, view.device)
    own = swept.on(device)
    if view.step_kind is None:
        return device, own
    kinds = own["step_kind"].drop_nulls().unique(maintain_order=True).to_list()
    if view.step_kind not in kinds:
        known = ", ".join(kinds) or "none at all"
        msg = f"there are no steps of kind {view.step_kind!r}; there are: {known}"
        raise InputError(msg)
    return device, own.filter(pl.col("step_kind") == view.step_kind)


def _device(swept: SweptTrace, wanted: int | None) -> int | None:
    """The one that was asked for, or else that whose kernels take most time."""
    if wanted is not None:
        if wanted not in swept.devices:
            known = ", ".join(map(str, swept.devices))
            msg = f"no kernel ran on device {wanted}; --device is one of {known}"
            raise InputError(msg)
        return wanted
    totals = device_totals(swept.kernels).sort("busy_ns", maintain_order=True)
    busiest: int | None = totals["device"][-1]
    return busiest


def _headlines(swept: SweptTrace, found: tuple[StepVerdict, ...]) -> tuple[Fact, ...]:
    return (*trust_facts(swept.trust.notes), *verdict_facts(found))


def _title(swept: SweptTrace, device: int | None) -> str:
    """The file, and the device in it that is told about, where that has a name."""
    names = [each.name for each in swept.trace.devices if each.device == device]
    return " on ".join(filter(None, (swept.trace.label, *names[:1])))


def _tables(
    swept: SweptTrace, own: pl.DataFrame, found: tuple[StepVerdict, ...]
) -> Iterator[Table]:
    yield from step_table(own)
    yield from verdict_table(found)
    yield from part_tables(own)
    yield from layer_tables(own)
    yield from variant_tables(own)
    yield from overlap_table(swept, own)
    yield from gap_table(own)
    yield from unassigned_table(own)


def _device_table(swept: SweptTrace, device: int | None) -> Iterator[Table]:
    """All devices, where there are several."""
    if len(swept.devices) == 1:
        return
    keys = [column.key for column in _DEVICES[1:]]
    rows = device_totals(swept.kernels).select("device", *keys).rows()
    yield Table(
        title="devices",
        columns=_DEVICES,
        rows=tuple(
            (f"{name}{' (told below)' if name == device else ''}", *rest)
            for name, *rest in rows
        ),
    )


def _layer_notes(tables: tuple[Table, ...], own: pl.DataFrame) -> Iterator[str]:
    if any(MEDIAN in table.title for table in tables):
        yield _MEDIANS
    yield from variant_notes(own)


def _notes(tables: tuple[Table, ...], found: tuple[StepVerdict, ...]) -> Iterator[str]:
    overlaps = (table for table in tables if table.columns == OVERLAPS)
    kinds = {cell for table in overlaps for row in table.rows for cell in row}
    if OverlapKind.PROGRAMMATIC.value in kinds:
        yield _PDL
    if OverlapKind.EITHER.value in kinds:
        yield _EITHER
    if OverlapKind.UNKNOWN.value in kinds:
        yield _UNKNOWN
    if any(Part.LAUNCH in each.verdict for each in found):
        yield _SLOWED
    if any(table.columns == UNPLACED for table in tables):
        yield _RULES
