"""The kernels that an arm really ran, as a chain whose limits can be measured."""

from collections.abc import Mapping
from typing import Final

import polars as pl

from layerscope.analyze.typical import typical_pass
from layerscope.graphs.skeleton import Stage
from layerscope.passes import PASS_KEYS
from layerscope.regions import Region

_MUCH: Final = 3
"""A first expert product reads twice as much as the second; what durations say of it
may be off by as much again."""

_LABELS: Final = ("name", "role", "region")


def chain_of(kernels: pl.DataFrame, required: Mapping[str, int]) -> tuple[Stage, ...]:
    """The kernels of an arm's usual pass, with the bytes that its regions must move.

    Which kernel reads what is not known. A kernel is taken to read for as long as it
    takes beyond the shortest kernel of the pass, and the bytes of a region are divided
    among its kernels in proportion, exactly; where all take as long as the shortest,
    the first reads all. Of a MoE, the first kernel that reads at least a third as much
    as the one that reads most is taken to be the first to read experts, which must wait
    for the routing. So a limit of such a chain says what this number and order of
    kernels would cost with bytes spread as here.

    Args:
        kernels: `schema.KERNELS` of one (arm, experiment); more columns do not matter.
        required: bytes that a pass must move, by region; those without kernels do not
            appear in the chain.
    """
    listed = _usual_kernels(kernels)
    if listed.is_empty():
        return ()
    beyond = listed["duration_ns"] - listed["duration_ns"].min()
    weighted = listed.with_columns(weight=beyond.cast(pl.Int64))
    sizes: dict[int, int] = {}
    for (region,), part in weighted.partition_by("region", as_dict=True).items():
        weights = dict(part.select("place", "weight").iter_rows())
        sizes |= _divided(required.get(region, 0), weights)
    routed = _routed(weighted, sizes)
    return tuple(
        Stage(
            name=row["role"] or row["name"],
            region=row["region"],
            bytes=sizes[row["place"]],
            needs_routing=row["place"] == routed,
        )
        for row in weighted.iter_rows(named=True)
    )


def _usual_kernels(kernels: pl.DataFrame) -> pl.DataFrame:
    """One row a kernel of the usual pass: place, labels and median duration."""
    inside = kernels.filter(pl.col("pass_index") >= 0)
    return (
        typical_pass(inside)
        .alike.with_columns(place=pl.col("node").rank("ordinal").over(PASS_KEYS))
        .group_by("place")
        .agg(pl.col(_LABELS).first(), pl.col("duration_ns").median())
        .sort("place")
    )


def _divided(total: int, weights: Mapping[int, int]) -> dict[int, int]:
    """`total` in parts proportional to `weights`; the first largest gets what is over.

    Of weights that are all zero, the first counts as one.
    """
    heaviest = max(weights, key=lambda place: weights[place])
    whole = sum(weights.values())
    parts = {
        place: total * weight // whole if whole else 0
        for place, weight in weights.items()
    }
    parts[heaviest] += total - sum(parts.values())
    return parts


def _routed(listed: pl.DataFrame, sizes: Mapping[int, int]) -> int | None:
    places = listed.filter(pl.col("region") == Region.MOE)["place"].to_list()
    most = max((sizes[place] for place in places), default=0)
    return next((place for place in places if sizes[place] * _MUCH >= most), None)
