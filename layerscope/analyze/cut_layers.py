"""Layers of which only a part was recorded: the trace, or its step, begins within one.

A layer that is whole may be shorter than others, too: the first adds no residual, and
kinds of layers differ. So one is cut only if nothing comes before it (or after it), it
lacks much, and what it has is how a usual layer ends (or begins).
"""

from typing import Final

import numpy as np

from layerscope.analyze.kernel_line import Ints, KernelArrays

_WHOLE: Final = 0.85
"""Share of the kernels of a usual layer from which one counts as a layer."""

_ALIKE: Final = 0.9
"""Share of its kernels that are as in another layer: some change from time to time."""

_FEWEST: Final = 3  # one between two ends shows what is usual


def drop_cut(arrays: KernelArrays, rows: Ints, layers: Ints) -> tuple[Ints, int]:
    """Take out the first and the last layer of a step, where these are cut.

    Args:
        arrays: Kernels of any steps.
        rows: Those of one step.
        layers: Of each of `rows`, from 0; -1 outside of layers.

    Returns:
        Layers as they came, again from 0, and how many were cut.
    """
    is_main = arrays.main_lane(rows)
    main = layers[is_main]
    inside = np.flatnonzero(main >= 0)
    numbers, firsts = np.unique(main[inside], return_index=True)
    begins = inside[firsts]
    is_numbered = np.array_equal(numbers, np.arange(numbers.size))
    if numbers.size < _FEWEST or not is_numbered or (np.diff(begins) < 0).any():
        return layers, 0
    bounds = np.append(begins, inside[-1] + 1)
    parts = np.split(arrays.identity[rows[is_main]], bounds)
    before, *found, after = parts
    is_first_cut = not before.size and _is_cut(found[0][::-1], found[1:-1], back=True)
    is_last_cut = not after.size and _is_cut(found[-1], found[1:-1])
    kept = layers.copy()
    if is_last_cut:
        kept[kept == numbers[-1]] = -1
    if is_first_cut:
        kept = np.maximum(kept - 1, -1)
    return kept, int(is_first_cut) + int(is_last_cut)


def _is_cut(end: Ints, usual: list[Ints], *, back: bool = False) -> bool:
    """Whether `end` is a part of a usual layer.

    Args:
        end: The kernels of a layer, beginning where it is not cut.
        usual: Those of the layers between the first and the last.
        back: Whether `end` is read from its last kernel on.
    """
    if end.size >= _WHOLE * np.median([each.size for each in usual]):
        return False
    read = (each[::-1] if back else each for each in usual)
    return any(
        each.size > end.size and (each[: end.size] == end).mean() >= _ALIKE
        for each in read
    )
