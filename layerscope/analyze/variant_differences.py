"""By what variants of layers differ: kernels, how many, their order, their streams."""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

import polars as pl

from layerscope.analyze.kernel_identity import with_identity

_LAYER: Final = ("device", "step", "layer")
_STREAM: Final = ("process", "context", "stream")


class Difference(StrEnum):
    """How layers of equal kernels differ."""

    ORDER = "in another order"
    STREAMS = "on other streams"


class Alike(NamedTuple):
    """A variant with the same kernels as an earlier one."""

    variant: str
    earlier: str
    difference: Difference


def kernels_by_variant(layered: pl.DataFrame) -> pl.DataFrame:
    """How many kernels of each sort a layer of each variant runs.

    Args:
        layered: `schema.PLACED_KERNELS` of layers, in order.

    Returns:
        Columns identity (Int64), name, region (of the first such kernel), variant and
        kernels (Int64, of a layer), in the order in which kernels of that sort begin.
    """
    known = with_identity(layered)
    layers = known.select(*_LAYER, "variant").unique().group_by("variant").len("layers")
    told = known.group_by("identity", maintain_order=True).agg(
        pl.col("name", "region").first()
    )
    counts = known.group_by("identity", "variant").agg(rows=pl.len())
    return (
        told.join(counts, on="identity", maintain_order="left")
        .join(layers, on="variant", maintain_order="left")
        .select(
            *("identity", "name", "region", "variant"),
            kernels=(pl.col("rows") / pl.col("layers")).round().cast(pl.Int64),
        )
    )


def alike_variants(layered: pl.DataFrame) -> Iterator[Alike]:
    """The variants that run as many kernels of each sort as one before them.

    Args:
        layered: `schema.PLACED_KERNELS` of layers, in order.
    """
    known = with_identity(layered)
    seen: dict[frozenset[tuple[int, int]], tuple[str, object]] = {}
    for (variant,), rows in sorted(known.group_by("variant", maintain_order=True)):
        own = rows.row(0, named=True)
        same = (pl.col(name).eq_missing(pl.lit(own[name])) for name in _LAYER)
        one = rows.filter(*same)
        counts = frozenset(Counter(one["identity"].to_list()).items())
        lanes = _lanes(one)
        if counts not in seen:
            seen[counts] = (str(variant), lanes)
            continue
        earlier, other = seen[counts]
        is_order = lanes == other
        difference = Difference.ORDER if is_order else Difference.STREAMS
        yield Alike(str(variant), earlier, difference)


def _lanes(layer: pl.DataFrame) -> list[list[int]]:
    """What runs on each stream of a layer, whatever the order."""
    lanes = layer.group_by(_STREAM).agg(pl.col("identity").sort())
    return sorted(lanes["identity"].to_list())
