"""Layers by the ranges in which kernels were launched, where these name layers."""

from typing import Final

import polars as pl

from layerscope.schema import INT

_WHOLE: Final = 0.95
"""Share of the kernels from the first layer to the last that must be in a range:
ranges of parts of layers do not tell where layers begin."""

_MOST: Final = 0.5
"""Share of the kernels of a step that these must be."""

_FEWEST: Final = 2
_RESTART: Final = -2  # streams that run beside each other may be one layer apart
_STEP: Final = ["device", "step"]


def layers_by_ranges(kernels: pl.DataFrame) -> pl.DataFrame:
    """Take the numbers that ranges give to layers, in the steps that these fill.

    Models with an encoder have layers of the same numbers twice; of several such stacks
    in a step the one with most kernels is taken.

    Args:
        kernels: In order, with Int64 step and range_layer (what a range says, null
            where none does).

    Returns:
        `kernels` in its order with Int64 layer, from 0 in each step: null in steps of
        which ranges do not tell the layers.
    """
    row, number = pl.col("_row"), pl.col("range_layer")
    numbered = kernels.with_row_index("_row")
    stacks = _stacks(numbered)
    is_inside = (row >= pl.col("_first")) & (row <= pl.col("_last"))
    inside = numbered.join(stacks, on=_STEP, nulls_equal=True).filter(is_inside)
    sizes = inside.group_by(_STEP).agg(_between=pl.len())
    good = stacks.join(sizes, on=_STEP, nulls_equal=True).filter(
        pl.col("_layers") >= _FEWEST,
        pl.col("_kernels") >= _WHOLE * pl.col("_between"),
        pl.col("_between") >= _MOST * pl.col("_size"),
    )
    before = number.forward_fill().over(_STEP)
    is_same = before == number.backward_fill().over(_STEP)
    layers = (
        inside.join(good, on=_STEP, how="semi", nulls_equal=True)
        .with_columns(_number=pl.when(is_same).then(before).otherwise(number))
        .select("_row", layer=pl.col("_number").rank("dense").over(_STEP).cast(INT) - 1)
    )
    return numbered.join(layers, on="_row", how="left", maintain_order="left").drop(
        "_row"
    )


def _stacks(numbered: pl.DataFrame) -> pl.DataFrame:
    """The layers with most kernels of each step: where they are, and how many."""
    row, number = pl.col("_row"), pl.col("range_layer")
    told = numbered.filter(pl.col("step").is_not_null() & number.is_not_null())
    is_restart = (number.diff() <= _RESTART).fill_null(value=False)
    sizes = numbered.group_by(_STEP).agg(_size=pl.len())
    return (
        told.with_columns(_stack=is_restart.cum_sum().over(_STEP))
        .group_by(*_STEP, "_stack", maintain_order=True)
        .agg(
            _kernels=pl.len(),
            _layers=number.n_unique(),
            _first=row.min(),
            _last=row.max(),
        )
        .sort("_kernels", descending=True, maintain_order=True)
        .unique(_STEP, keep="first", maintain_order=True)
        .join(sizes, on=_STEP, nulls_equal=True)
    )
