"""A small trace made by hand, with its layers found: every number is on paper.

One device, two decode steps of four layers and one prefill step of three. A layer runs
three kernels one after another, the first a gap of 1,000 ns after what came before::

    attention 10,000 ns    mlp 20,000 ns at once    mlp 5,000 ns, hidden for 2,000 of it

so a layer of a decode step takes 1,000 + 10,000 + 20,000 + 3,000 = 34,000 ns. Layers of
the prefill step take ten times as long, but for the gap. Before the layers of a step
runs one kernel of 4,000 ns, after them one of 8,000 ns, and between steps a copy of
500 ns that no step has.
"""

from collections.abc import Iterator
from typing import Any

import polars as pl

from layerscope.analyze.swept_trace import SweptTrace, sweep_trace
from layerscope.schema import (
    PLACED_KERNELS,
    TRACE_CALLS,
    TRACE_KERNELS,
    TRACE_RANGES,
    empty,
)
from layerscope.trace import Trace, TraceDevice, TraceNote, TraceSource

LAYER = (
    # name, region, role, gap before it (negative: overlap), duration
    ("attend", "attention", "attend", 1_000, 10_000),
    ("gate_up", "mlp", "gate_up", 0, 20_000),
    ("down", "unassigned", None, -2_000, 5_000),
)
LAYER_NS = 34_000
STEPS = (("decode", 4, 1), ("prefill", 3, 10), ("decode", 4, 1))


def kernels(
    *, scale: int = 1, names: dict[str, str] | None = None, start_ns: int = 0
) -> pl.DataFrame:
    """`schema.PLACED_KERNELS` of the trace above.

    Args:
        scale: what durations are multiplied with.
        names: other names for kernels, by theirs.
        start_ns: when its first kernel starts.
    """
    rows = list(_rows(scale, names or {}, start_ns))
    return pl.DataFrame(rows, schema=PLACED_KERNELS)


def touching() -> pl.DataFrame:
    """The same kernels, as tools tell them whose durations hold gaps and overlaps."""
    follows = pl.col("start_ns").shift(-1) - pl.col("start_ns")
    return kernels().with_columns(duration_ns=follows.fill_null(pl.col("duration_ns")))


def trace(placed: pl.DataFrame, **changes: Any) -> Trace:  # noqa: ANN401 (any field)
    """The trace that `placed` is of."""
    values: dict[str, Any] = {
        "source": TraceSource(
            path="somewhere/paper.json.gz",
            format="Kineto JSON",
            written_by="torch 2.11.0",
            bytes=1_000,
        ),
        "kernels": placed.select(*TRACE_KERNELS),
        "calls": empty(TRACE_CALLS),
        "ranges": empty(TRACE_RANGES),
        "devices": (
            TraceDevice(
                device=0,
                name="Paper GPU",
                architecture="sm_90",
                processors=132,
                memory_bytes=80_000_000_000,
            ),
        ),
        "origin_ns": 1_790_000_000_000_000_000,
        "notes": (
            TraceNote(kind="dropped", what="kernels without a time", count=2),
            TraceNote(kind="doubted", what="clocks that ran backwards"),
        ),
    }
    return Trace(**(values | changes))


def swept_trace(
    placed: pl.DataFrame | None = None,
    **changes: Any,  # noqa: ANN401 (any field of the trace)
) -> SweptTrace:
    """The trace above, or one of other kernels, with what was found in it."""
    found = kernels() if placed is None else placed
    return sweep_trace(trace(found, **changes), found)


def _rows(scale: int, names: dict[str, str], start_ns: int) -> Iterator[dict[str, Any]]:
    now_ns = start_ns
    for step, (kind, layers, longer) in enumerate(STEPS):
        placed = {"step": step, "step_kind": kind}
        yield _row("embed", now_ns, 4_000, placed)
        now_ns += 4_000
        for layer in range(layers):
            for position, (name, region, role, gap_ns, duration_ns) in enumerate(LAYER):
                own = placed | {"layer": layer, "variant": "A", "position": position}
                own |= {"region": region, "role": role}
                own["assigned_by"] = "nothing" if role is None else f"rule {role}"
                now_ns += gap_ns
                took_ns = duration_ns * longer * scale
                yield _row(names.get(name, name), now_ns, took_ns, own)
                now_ns += took_ns
        yield _row("head", now_ns, 8_000, placed)
        now_ns += 8_000
        yield _row("copy", now_ns, 500, {"kind": "copy"})
        now_ns += 500


def _row(
    name: str, start_ns: int, duration_ns: int, placed: dict[str, Any]
) -> dict[str, Any]:
    launch = {"grid_x": 132, "grid_y": 1, "grid_z": 1, "block_x": 256, "block_y": 1}
    launch |= {"block_z": 1, "registers": 64, "shared_bytes": 2_048}
    where = {"device": 0, "context": 1, "stream": 7, "kind": "kernel"}
    none = {"region": "unassigned", "assigned_by": "nothing"}
    when = {"name": name, "start_ns": start_ns, "duration_ns": duration_ns}
    row: dict[str, Any] = launch | where | none | when | placed
    return dict.fromkeys(PLACED_KERNELS) | row
