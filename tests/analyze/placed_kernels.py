"""Kernels of a trace in steps, layers and regions, written down in few words."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from layerscope.analyze.trace_gaps import with_launches
from layerscope.analyze.trace_shares import swept_kernels
from layerscope.schema import PLACED_KERNELS, TRACE_CALLS, TRACE_RANGES
from layerscope.trace import Trace, TraceDevice, TraceNote, TraceSource

_USUAL: dict[str, Any] = {
    "device": 0,
    "context": 1,
    "stream": 7,
    "kind": "kernel",
    "name": "gemm",
    "region": "unassigned",
    "assigned_by": "nothing",
}

Row = tuple[int, int, dict[str, Any]]


def kernel(start_ns: int, duration_ns: int, **fields: Any) -> Row:  # noqa: ANN401
    """A kernel on stream 7 of device 0, but for `fields`."""
    return start_ns, duration_ns, fields


def placed(rows: Sequence[Row]) -> pl.DataFrame:
    """`schema.PLACED_KERNELS`, in the order in which they are trusted to be."""
    records = [
        _USUAL | {"start_ns": start, "duration_ns": duration} | fields
        for start, duration, fields in rows
    ]
    columns = {name: [each.get(name) for each in records] for name in PLACED_KERNELS}
    frame = pl.DataFrame(columns, schema=PLACED_KERNELS)
    end = pl.col("start_ns") + pl.col("duration_ns")
    return frame.sort("device", "start_ns", end, maintain_order=True)


def calls(*rows: tuple[int, str, int, int]) -> pl.DataFrame:
    """`schema.TRACE_CALLS` of rows (correlation, name, start, end)."""
    fields = [
        {
            "name": name,
            "start_ns": start,
            "duration_ns": end - start,
            "correlation": correlation,
        }
        for correlation, name, start, end in rows
    ]
    columns = {name: [each.get(name) for each in fields] for name in TRACE_CALLS}
    return pl.DataFrame(columns, schema=TRACE_CALLS)


def launched(rows: Sequence[Row], *launches: tuple[int, str, int, int]) -> pl.DataFrame:
    """The kernels after `swept_kernels` and `with_launches`."""
    return with_launches(swept_kernels(placed(rows)), calls(*launches))


def trace(
    rows: Sequence[Row],
    *launches: tuple[int, str, int, int],
    architecture: str = "sm_90",
    notes: tuple[TraceNote, ...] = (),
) -> Trace:
    """A trace of these kernels and calls, of one device."""
    return Trace(
        TraceSource(path="handmade.json", format="Kineto JSON", bytes=1_000),
        placed(rows).select(pl.all().exclude(_PLACES)),
        calls(*launches),
        pl.DataFrame(schema=TRACE_RANGES),
        devices=(TraceDevice(device=0, name="A GPU", architecture=architecture),),
        notes=notes,
    )


_PLACES = (
    *("step", "step_kind", "layer", "variant", "position"),
    *("region", "role", "assigned_by"),
)
