"""A trace by hand for reports: decode steps of layers whose figures are on paper.

Two decode steps of three layers, 1,000 ns apart. A layer runs, one after another::

    attention  10,000 ns, after a gap of 1,000 ns
    moe        20,000 ns, of which 2,000 ns behind attention

so it takes 29,000 ns, but that the first of a step has no gap of its own. Behind the
layers of a step runs one kernel of 5,000 ns whose region nobody knows. All kernels are
launched long before they run, but for the first of a step, which comes late.
"""

from typing import Any

import polars as pl

from layerscope.analyze.swept_trace import SweptTrace, sweep_trace
from layerscope.schema import PLACED_KERNELS
from layerscope.trace import TraceNote
from tests.analyze.placed_kernels import Row, kernel, placed, trace

_STEP = ("step", "step_kind", "layer", "variant", "position")
LAYER_NS = 29_000
STEP_NS = 3 * LAYER_NS - 1_000 + 5_000


def swept(notes: tuple[TraceNote, ...] = (), **trace_fields: Any) -> SweptTrace:  # noqa: ANN401
    """The trace after the sweep; `trace_fields` as `placed_kernels.trace` has them."""
    rows = [*_step(0, 0), *_step(STEP_NS + 1_000, 1)]
    launches = [
        (fields["correlation"], "cudaLaunchKernel", -500, -400)
        if fields["correlation"] != 100
        else (100, "cudaLaunchKernel", start - 200, start - 100)
        for start, _, fields in rows
    ]
    return sweep_trace(
        trace(rows, *launches, notes=notes, **trace_fields), placed(rows)
    )


def without_steps() -> SweptTrace:
    """The same where neither steps nor layers were found."""
    found = swept()
    none = pl.lit(None)
    without = found.kernels.select(*PLACED_KERNELS).with_columns(
        *(none.cast(PLACED_KERNELS[name]).alias(name) for name in _STEP)
    )
    return sweep_trace(found.trace, without, {"nothing repeats": 0})


def _step(at_ns: int, step: int) -> list[Row]:
    known = {"step": step, "step_kind": "decode"}
    number = 100 * step
    rows = []
    for layer in range(3):
        start = at_ns + layer * LAYER_NS
        place = known | {"layer": layer, "variant": "A"}
        attend = place | {"region": "attention", "name": "attend", "position": 0}
        expert = place | {"region": "moe", "name": "experts", "position": 1}
        rule = {"assigned_by": "rule paper"}
        rows += [
            kernel(start, 10_000, correlation=number, **attend, **rule),
            kernel(start + 8_000, 20_000, correlation=number + 1, **expert, **rule),
        ]
        number += 2
    end = at_ns + STEP_NS - 5_000
    return [*rows, kernel(end, 5_000, correlation=number, name="sample", **known)]
