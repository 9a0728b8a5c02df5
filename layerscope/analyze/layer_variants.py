"""Which layers run the same kernels, and where in its layer each kernel is."""

from string import ascii_uppercase
from typing import Final

import polars as pl

from layerscope.schema import INT, TEXT

_LAYER: Final = ("device", "step", "layer")
_LISTS: Final = ("_identities", "_lanes")


def with_variants(kernels: pl.DataFrame) -> pl.DataFrame:
    """Name the variant of each layer, and number the kernels of each.

    Layers are of one variant where each stream of one runs the same kernels in the same
    order as one of the other; which stream was earlier does not matter. "A" is the
    variant of most layers of a device, of equally many the one that appears first.

    Args:
        kernels: `schema.TRACE_KERNELS` in order, with Int64 step and layer, Int64
            _identity (equal for equal kernels) and _lane (the stream).

    Returns:
        The rows in their order, with String variant and Int64 position in the layer
        (from 0, in order of time); null where layer is null.
    """
    numbered = kernels.with_row_index("_row")
    layered = numbered.filter(pl.col("layer").is_not_null())
    # of two streams, that with more kernels is told first; their numbers may change
    layered = layered.with_columns(
        _in_lane=pl.len().over(*_LAYER, "_lane"),
        _first=pl.col("_identity").first().over(*_LAYER, "_lane"),
        position=pl.int_range(pl.len(), dtype=INT).over(_LAYER),
    )
    ordered = layered.sort(
        "_in_lane", "_first", "_lane", "_row", descending=[True, False, False, False]
    )
    lists = ordered.group_by(_LAYER, maintain_order=True).agg(
        _identities="_identity",
        _lanes=pl.col("_lane").rle_id(),
        _row=pl.col("_row").min(),
    )
    kinds = (
        lists.group_by("device", *_LISTS)
        .agg(_layers=pl.len(), _row=pl.col("_row").min())
        .sort("_layers", "_row", descending=[True, False])
        .with_columns(_number=pl.int_range(pl.len()).over("device"))
    )
    names = [variant_name(index) for index in kinds["_number"]]
    named = kinds.select("device", *_LISTS, variant=pl.Series(names, dtype=TEXT))
    variants = lists.join(
        named, on=["device", *_LISTS], how="left", nulls_equal=True
    ).select(*_LAYER, "variant")
    found = layered.join(variants, on=_LAYER, how="left", nulls_equal=True)
    return (
        numbered.join(
            found.select("_row", "variant", "position"), on="_row", how="left"
        )
        .sort("_row")
        .drop("_row")
    )


def variant_name(index: int) -> str:
    """Count in letters: "A", "B", …, "Z", "AA", "AB" and so on."""
    name = ""
    index += 1
    while index:
        index, letter = divmod(index - 1, len(ascii_uppercase))
        name = ascii_uppercase[letter] + name
    return name
