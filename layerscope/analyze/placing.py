"""From a trace to kernels of which step, layer and region are known."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from layerscope.analyze.kernel_rules import Rules
from layerscope.analyze.layer_finder import StepKey, look_for_layers
from layerscope.analyze.layer_ranges import layers_by_ranges
from layerscope.analyze.trace_ranges import assign_by_ranges
from layerscope.analyze.trace_regions import assign_by_rules, fill_between
from layerscope.analyze.trace_sequences import assign_by_sequences
from layerscope.analyze.trace_steps import find_steps
from layerscope.schema import PLACED_KERNELS
from layerscope.trace import Trace

_ORDER: Final = ("device", "start_ns", "_end_ns")


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class PlacedTrace:
    """The kernels of a trace, and what could not be told of them."""

    kernels: pl.DataFrame
    """`schema.PLACED_KERNELS`."""

    steps: int
    """Steps of all devices."""

    without_layers: dict[str, int]
    """Why steps have no layers, and how many have none for that: 0 where a device has
    no steps, either."""

    cut: dict[StepKey, int]
    """Steps with layers of which only a part was recorded, and how many of these."""


def place(trace: Trace, rules: Rules) -> pl.DataFrame:
    """As `place_trace`, without saying why steps may have no layers."""
    return place_trace(trace, rules).kernels


def place_trace(trace: Trace, rules: Rules) -> PlacedTrace:
    """Say of each kernel of `trace` in which step, layer and region it ran.

    Args:
        trace: From any reader.
        rules: What names of kernels and ranges say of regions.
    """
    ordered = (
        trace.kernels.with_columns(_end_ns=pl.col("start_ns") + pl.col("duration_ns"))
        .sort(*_ORDER, maintain_order=True)
        .drop("_end_ns")
    )
    ranged = assign_by_ranges(ordered, trace.calls, trace.ranges, rules)
    ruled = assign_by_rules(ranged, rules)
    stepped = find_steps(ruled, trace.calls, trace.ranges)
    found = look_for_layers(layers_by_ranges(stepped))
    filled = fill_between(assign_by_sequences(found.kernels, rules), rules)
    kernels = filled.select(*PLACED_KERNELS)
    return PlacedTrace(kernels, found.steps, found.reasons, found.cut)
