"""Which step of a model each kernel of a trace belongs to: one forward pass, if told.

Steps are looked for on each device, in this order:

1. *Ranges* that name steps, see `step_names`. A kernel is of the step in which it was
   launched, whenever it ran. Without its launch it is of the step during which it ran.
2. *Launches of whole graphs*: all kernels of one replay that repeats a layer.
3. *The stack of layers itself*, where it is there several times. The boundary is where
   the device was idle for longest between two of them. A range of a profiler is split
   in the same way, as it may hold several forward passes.
4. The whole device is one step.

The first is taken that has at least half of the kernels. The last two stay only where
`layer_finder` finds layers in them: without any, nothing tells steps.
"""

from enum import StrEnum
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl

from layerscope.analyze.kernel_line import Ints, KernelArrays, kernel_arrays, rows_by
from layerscope.analyze.stacks import find_stacks
from layerscope.analyze.step_kinds import kinds_by_kernels
from layerscope.analyze.step_names import FORWARD
from layerscope.analyze.step_ranges import steps_by_ranges
from layerscope.schema import INT, LAUNCH_KEYS, TEXT
from layerscope.trace_names import GRAPH_LAUNCH


class StepBy(StrEnum):
    """What told the steps of a device."""

    RANGES = "ranges"
    GRAPHS = "launches of graphs"
    STACKS = "layers that come again"
    DEVICE = "nothing"
    """All of the device is one step; it may be several."""


_ENOUGH: Final = 0.5
_FEWEST_NODES: Final = 8  # a replay of fewer holds no layers


def find_steps(
    kernels: pl.DataFrame, calls: pl.DataFrame, ranges: pl.DataFrame
) -> pl.DataFrame:
    """Find the steps of every device.

    Args:
        kernels: `schema.TRACE_KERNELS` in the order (device, start, end); String region
            and role, where known, help to tell layers from other repetition.
        calls: `schema.TRACE_CALLS`.
        ranges: `schema.TRACE_RANGES`.

    Returns:
        `kernels` in its order, with Int64 step (from 0 on each device, in order of
        their first kernels; null outside steps), String step_kind and String step_by
        (a `StepBy`).
    """
    numbered = kernels.with_row_index("_row")
    launches = calls.drop_nulls("correlation").unique(
        LAUNCH_KEYS, keep="first", maintain_order=True
    )
    launched = numbered.join(
        launches.select(*LAUNCH_KEYS, _call="name", _launch_ns="start_ns"),
        on=LAUNCH_KEYS,
        how="left",
        nulls_equal=True,
        maintain_order="left",
    ).with_columns(
        _launch_ns=pl.when(pl.col("correlation").is_not_null()).then("_launch_ns")
    )
    found = [
        _steps_of_device(device, ranges)
        for device in launched.partition_by("device", maintain_order=True)
    ]
    schema = {"_row": pl.UInt32(), "step_kind": TEXT, "step_by": TEXT, "step": INT}
    steps = pl.concat([pl.DataFrame(schema=schema), *found]).sort("_row")
    return kernels.with_columns(steps["step"], steps["step_kind"], steps["step_by"])


def _steps_of_device(kernels: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Columns _row, step, step_kind and step_by of the kernels of one device."""
    arrays = kernel_arrays(kernels.with_columns(step=pl.lit(0, INT)))
    marked = steps_by_ranges(kernels, ranges)
    by = StepBy.RANGES
    if _is_enough(marked):
        if not _is_forward(marked):
            marked = _split(marked, arrays)
    else:
        marked = _by_graphs(kernels, arrays)
        by = StepBy.GRAPHS
    if not _is_enough(marked):
        whole = _untold(pl.repeat(0, kernels.height, dtype=INT, eager=True))
        marked = _split(whole, arrays)
        by = StepBy.STACKS if marked["_step"].n_unique() > 1 else StepBy.DEVICE
    stepped = kernels.with_columns(
        marked["_step"],
        marked["step_kind"],
        step_by=pl.when(marked["_step"].is_not_null()).then(pl.lit(by.value)),
    )
    return _in_order(kinds_by_kernels(stepped))


def _is_enough(marked: pl.DataFrame) -> bool:
    return marked["_step"].null_count() <= (1 - _ENOUGH) * marked.height


def _is_forward(marked: pl.DataFrame) -> bool:
    return marked["source"].drop_nulls().is_in(FORWARD).all()


def _in_order(stepped: pl.DataFrame) -> pl.DataFrame:
    """Number steps by their first kernel."""
    is_in = pl.col("_step").is_not_null()
    first = pl.when(is_in).then(pl.col("_row").min().over("_step"))
    number = first.rank("dense").cast(INT) - 1
    return stepped.select("_row", "step_kind", "step_by", step=number)


def _by_graphs(kernels: pl.DataFrame, arrays: KernelArrays) -> pl.DataFrame:
    """Take the kernels of every launch that repeats a layer as a step."""
    is_replay = pl.col("_call").str.contains(GRAPH_LAUNCH)
    is_replay |= pl.col("_call").is_null() & pl.col("correlation").is_not_null()
    is_large = pl.len().over("process", "correlation") >= _FEWEST_NODES
    number = pl.struct("process", "correlation").rank("dense").cast(INT)
    numbers = kernels.select(pl.when(is_replay & is_large).then(number))
    steps = numbers.to_series().fill_null(-1).to_numpy().copy()
    memory: dict[bytes, bool] = {}
    for rows in rows_by(steps.copy()):
        if not _has_layers(arrays, rows, memory):
            steps[rows] = -1
    return _untold(pl.Series(steps, dtype=INT).replace(-1, None))


def _untold(steps: pl.Series) -> pl.DataFrame:
    """Steps of which no name tells anything."""
    return pl.DataFrame({"_step": steps}).with_columns(
        step_kind=pl.lit(None, TEXT), source=pl.lit(None, INT)
    )


def _has_layers(arrays: KernelArrays, rows: Ints, memory: dict[bytes, bool]) -> bool:
    main = rows[arrays.main_lane(rows)]
    key = arrays.key(main)
    if key not in memory:
        memory[key] = bool(find_stacks(arrays.line(main)))
    return memory[key]


def _split(marked: pl.DataFrame, arrays: KernelArrays) -> pl.DataFrame:
    """Split steps that hold the stack of layers several times."""
    steps = marked["_step"].fill_null(-1).to_numpy()
    split = np.full(steps.size, -1, dtype=np.int64)
    count = 0
    memory: dict[bytes, list[tuple[int, int]]] = {}
    for rows in rows_by(steps):
        borders = _borders_ns(arrays, rows, memory)
        split[rows] = count + np.searchsorted(
            borders, arrays.start_ns[rows], side="right"
        )
        count += borders.size + 1
    return marked.with_columns(_step=pl.Series(split, dtype=INT).replace(-1, None))


def _borders_ns(
    arrays: KernelArrays, rows: Ints, memory: dict[bytes, list[tuple[int, int]]]
) -> Ints:
    """When each stack of layers but the first begins, with all that leads to it."""
    main = rows[arrays.main_lane(rows)]
    key = arrays.key(main)
    if key not in memory:
        stacks = find_stacks(arrays.line(main), several=True)
        memory[key] = [(int(each.starts[0]), each.end) for each in stacks]
    starts_ns = arrays.start_ns[main]
    ends_ns = np.maximum.accumulate(arrays.end_ns[main])
    borders = []
    for (_, end), (start, _) in pairwise(memory[key]):
        # both ends count: with nothing between, the next stack begins a step
        idle_ns = starts_ns[end : start + 1] - ends_ns[end - 1 : start]
        longest = start - int(idle_ns[::-1].argmax())
        borders.append(int(starts_ns[longest]))
    return np.array(borders, dtype=np.int64)
