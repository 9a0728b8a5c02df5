"""From the rows that a reader has found to a `Trace`: cleaned, and starting at 0."""

from dataclasses import dataclass, field
from typing import Final

import polars as pl

from layerscope.ingest.cleaning import (
    LATEST_NS,
    clean_calls,
    clean_kernels,
    clean_ranges,
)
from layerscope.ingest.columns import DESCRIPTOR
from layerscope.schema import (
    INT,
    TRACE_CALLS,
    TRACE_KERNELS,
    TRACE_RANGES,
    Schema,
    empty,
)
from layerscope.trace import Trace, TraceDevice, TraceLog, TraceSource

_TIMES: Final[Schema] = {"start_ns": INT, "end_ns": INT}


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class Rows:
    """What a reader found, in the order and on the clock of the file.

    Each frame has ``start_ns`` and ``end_ns`` and any columns of its schema; those that
    it lacks are null.
    """

    kernels: pl.DataFrame = field(default_factory=lambda: empty(_TIMES))
    """Of `schema.TRACE_KERNELS`."""

    calls: pl.DataFrame = field(default_factory=lambda: empty(_TIMES))
    """Of `schema.TRACE_CALLS`."""

    ranges: pl.DataFrame = field(default_factory=lambda: empty(_TIMES))
    """Of `schema.TRACE_RANGES`."""


def kernel_name(column: str = "name") -> pl.Expr:
    """Names without the ending of AMD's descriptors, as `Names.kernels` gives them."""
    return pl.col(column).str.replace(DESCRIPTOR, "")


def blocks(work_items: pl.Expr, block: pl.Expr) -> pl.Expr:
    """How many blocks cover `work_items`, in one direction; null where unknown."""
    known = pl.when((block > 0) & (work_items >= 0))
    return known.then((work_items + block - 1) // block)


def call_rows(rows: pl.DataFrame, kernels: pl.DataFrame) -> pl.DataFrame:
    """Calls of the HIP runtime, and those of HSA that device work is linked to.

    HIP makes calls of HSA by the thousand, which launch nothing by themselves.

    Args:
        rows: what `Rows.calls` takes, and ``is_hsa``, Boolean.
        kernels: what `Rows.kernels` takes.
    """
    if rows.is_empty() or "correlation" not in kernels.columns:
        return rows.filter(~pl.col("is_hsa")).drop("is_hsa")
    key = [name for name in ("process", "correlation") if name in rows.columns]
    order = rows.with_row_index("_row")
    linked = order.filter("is_hsa").join(
        kernels.select(key).drop_nulls("correlation").unique(),
        on=key,
        how="semi",
        nulls_equal=True,
    )
    is_linked = pl.col("_row").is_in(linked["_row"].implode())
    return order.filter(~pl.col("is_hsa") | is_linked).drop("_row", "is_hsa")


def assemble(
    source: TraceSource,
    rows: Rows,
    log: TraceLog,
    *,
    devices: tuple[TraceDevice, ...] = (),
    unix_ns: int | None = None,
) -> Trace:
    """A `Trace` of `rows`, whose time 0 is the earliest start among them.

    Args:
        source: where they are from.
        rows: what was found.
        log: is told what had to be mended; its notes become those of the trace.
        devices: the GPUs that the file describes.
        unix_ns: Unix time of the time 0 of the file's clock, where known.
    """
    kernels, calls, ranges = (
        _whole(rows.kernels, TRACE_KERNELS),
        _whole(rows.calls, TRACE_CALLS),
        _whole(rows.ranges, TRACE_RANGES),
    )
    del rows  # each copy of millions of kernels is large
    kernels = clean_kernels(kernels, log)
    calls = clean_calls(calls, log)
    ranges = clean_ranges(ranges, log)
    starts = [frame["start_ns"].min() for frame in (kernels, calls, ranges)]
    first = min((start for start in starts if isinstance(start, int)), default=0)
    if kernels.is_empty():
        log.add("untrusted", _instead(calls, ranges))
    shift = pl.col("start_ns") - first
    return Trace(
        source=source,
        kernels=kernels.with_columns(shift),
        calls=calls.with_columns(shift),
        ranges=ranges.with_columns(shift, pl.col("end_ns") - first),
        devices=devices,
        origin_ns=None if unix_ns is None else unix_ns + first,
        notes=log.notes(),
    )


def _instead(calls: pl.DataFrame, ranges: pl.DataFrame) -> str:
    """What a trace without kernels has."""
    if calls.height:
        return "of kernels there are none, only calls that launched them or others"
    if ranges.height:
        return "of kernels there are none, only markers"
    return "of kernels, calls and markers there are none"


def _whole(frame: pl.DataFrame, schema: Schema) -> pl.DataFrame:
    """`frame` with all columns of `schema`, in its order."""
    # Beyond what any clock reads, a difference of times might not fit its column.
    bounded = frame.with_columns(
        pl.col("start_ns", "end_ns").clip(-LATEST_NS, LATEST_NS)
    ).with_columns(duration_ns=pl.col("end_ns") - pl.col("start_ns"))
    return bounded.select(
        pl.col(name).cast(dtype)
        if name in bounded.columns
        else pl.lit(None, dtype).alias(name)
        for name, dtype in schema.items()
    )
