"""Kernels of a trace of which the names are what matters."""

from collections.abc import Sequence

import polars as pl

from layerscope.schema import TRACE_KERNELS

WORK_NS = 1_000


def named(
    names: Sequence[str], *, step: int | None = 0, stream: int = 7
) -> pl.DataFrame:
    """`TRACE_KERNELS` and step: one after the other on one stream, in one step.

    A name that begins with "Mem" is that of a copy or fill, as Kineto calls them.
    """
    rows = [
        {
            "device": 0,
            "stream": stream,
            "kind": _kind(name),
            "name": name,
            "start_ns": place * WORK_NS,
            "duration_ns": WORK_NS,
            "correlation": place,
        }
        for place, name in enumerate(names)
    ]
    frame = pl.DataFrame(rows, schema=TRACE_KERNELS)
    return frame.with_columns(step=pl.lit(step, pl.Int64))


def _kind(name: str) -> str:
    return {"Memc": "copy", "Mems": "fill"}.get(name[:4], "kernel")
