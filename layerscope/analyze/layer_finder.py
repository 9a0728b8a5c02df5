"""Which layer of a model each kernel of a trace belongs to, found without markers.

A model repeats its layer, so that the kernels of a step are the same few over and over
again. `stacks` finds what is repeated; here that is done for each step of each device.
Ranges that name layers are better evidence, where a trace has them (`layer_ranges`).
"""

from collections import Counter
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import polars as pl

from layerscope.analyze.cut_layers import drop_cut
from layerscope.analyze.kernel_line import (
    Ints,
    KernelArrays,
    kernel_arrays,
    rows_by,
)
from layerscope.analyze.layer_variants import with_variants
from layerscope.analyze.stacks import Stack, find_stacks
from layerscope.analyze.trace_steps import StepBy
from layerscope.schema import INT

CORE: Final = "core"
"""The role of the kernel at the core of attention: one or a few a layer."""

NOTHING_REPEATS: Final = "no sequence of kernels repeats over at least half of them"
NOT_TOLD: Final = (
    "kernels repeat, but neither ranges nor kernels known to be of attention tell that "
    "these are layers"
)
NO_STEPS: Final = "no kernel is in a step"

_BY_LAYERS: Final = (StepBy.DEVICE.value, StepBy.STACKS.value)
"""What tells steps only where they have layers."""

_MOST_MEMORY: Final = 512  # steps of which so many differ

StepKey: TypeAlias = tuple[int | None, int]
"""Device and step."""


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class FoundLayers:
    """Kernels with their layers."""

    kernels: pl.DataFrame
    """With Int64 layer, String variant and Int64 position."""

    steps: int
    """Steps of all devices."""

    reasons: dict[str, int]
    """Why steps have no layers, and how many have none for that: 0 where a device has
    no steps, either."""

    cut: dict[StepKey, int]
    """Steps whose first or last layer is there in part only, and how many are: one or
    two. Kernels of these are in no layer."""

    @property
    def reason(self) -> str:
        """Why there are no layers at all; empty where there are any."""
        if self.kernels["layer"].null_count() < self.kernels.height:
            return ""
        return "; ".join(self.reasons) or NO_STEPS


def find_layers(kernels: pl.DataFrame) -> pl.DataFrame:
    """As `look_for_layers`, without saying why steps may have none."""
    return look_for_layers(kernels).kernels


def look_for_layers(kernels: pl.DataFrame) -> FoundLayers:
    """Find the repeated layer of each step.

    Args:
        kernels: `schema.TRACE_KERNELS` in order, with Int64 step; String region and
            role, where known, and step_by, from `trace_steps.find_steps`. Where it has
            an Int64 layer, that holds of the steps which have any.

    Returns:
        The rows in their order, with Int64 layer (from 0 in each step; null before the
        first whole layer and after the last, and in steps where nothing shows what a
        layer is), String variant and Int64 position, see `schema.PLACED_KERNELS`.
        Step and step_kind are null on devices where layers alone could tell steps, and
        there are none.
    """
    if "layer" not in kernels.columns:
        kernels = kernels.with_columns(layer=pl.lit(None, INT))
    arrays = kernel_arrays(kernels)
    layers = kernels["layer"].fill_null(-1).to_numpy().copy()
    memory: dict[bytes, list[Stack]] = {}
    lacking: list[tuple[int, str]] = []  # the first kernels of steps, and why
    cut: dict[StepKey, int] = {}
    for rows in rows_by(arrays.step):
        found = layers[rows]
        is_ranged = (found >= 0).any()
        if not is_ranged:
            found = _layers_of_step(arrays, rows, memory)
        is_in = found >= 0
        if not is_in.any():
            lacking.append((int(rows[0]), NOTHING_REPEATS))
        elif not is_ranged and not arrays.is_core[rows[is_in]].any():
            lacking.append((int(rows[0]), NOT_TOLD))
        else:
            layers[rows], number = drop_cut(arrays, rows, found)
            if number:
                cut[kernels.select("device", "step").row(int(rows[0]))] = number
    layered = kernels.with_columns(layer=pl.Series(layers, dtype=INT).replace(-1, None))
    placed = _without_untold_steps(layered).with_columns(
        _identity=pl.Series(arrays.identity), _lane=pl.Series(arrays.lane)
    )
    named = with_variants(placed).drop("_identity", "_lane")
    steps = named.drop_nulls("step").select("device", "step").n_unique()
    return FoundLayers(named, steps, _counted(lacking, named["step"]), cut)


def _without_untold_steps(kernels: pl.DataFrame) -> pl.DataFrame:
    """`kernels` in no step where only layers could tell steps, and there are none."""
    if "step_by" not in kernels.columns:
        return kernels
    is_told = pl.col("layer").is_not_null().any().over("device")
    is_told |= ~pl.col("step_by").is_in(_BY_LAYERS)
    return kernels.with_columns(pl.when(is_told).then(pl.col("^step(_kind)?$")))


def _counted(lacking: list[tuple[int, str]], steps: pl.Series) -> dict[str, int]:
    """Why steps lack layers, and how many of them are steps."""
    reasons: Counter[str] = Counter()
    for row, reason in lacking:
        reasons[reason] += steps[row] is not None
    return dict(reasons)


def _layers_of_step(
    arrays: KernelArrays, rows: Ints, memory: dict[bytes, list[Stack]]
) -> Ints:
    """The layer of each of `rows`, -1 of those outside of layers.

    The stream with most cores of attention, or else with most kernels, has the layers.
    What other streams run meanwhile is of the layer during which it begins.
    """
    is_main = arrays.main_lane(rows)
    main = rows[is_main]
    layers = np.full(rows.size, -1, dtype=np.int64)
    key = arrays.key(main)
    if key not in memory:
        if len(memory) >= _MOST_MEMORY:
            memory.pop(next(iter(memory)))
        memory[key] = find_stacks(arrays.line(main))
    if not memory[key]:
        return layers
    starts, end = memory[key][0].starts, memory[key][0].end
    places = np.arange(main.size)
    on_main = np.searchsorted(starts, places, side="right") - 1
    layers[is_main] = np.where(places < end, on_main, -1)
    begins = arrays.start_ns[main[starts]]
    last_ns = arrays.end_ns[main[starts[-1] : end]].max()
    other_ns = arrays.start_ns[rows[~is_main]]
    beside = np.searchsorted(begins, other_ns, side="right") - 1
    layers[~is_main] = np.where(other_ns < last_ns, beside, -1)
    return layers
