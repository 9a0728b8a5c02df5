"""The kernels that the passes of an arm have in common, in their order."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from layerscope.passes import GRAPH_PASS_KEYS

_CODE: Final = (
    *("name", "grid_x", "grid_y", "grid_z"),
    *("block_x", "block_y", "block_z"),
)


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class TypicalPass:
    """The list of kernels that most passes have, and which passes these are."""

    kernels: pl.DataFrame
    """One row a kernel: region, ordinal (Int64, from 0 within the region, in order of
    nodes), role, name, and grid and block as in `schema.KERNELS`; sorted by the first
    two. Grid and block are those of the first such pass."""

    alike: pl.DataFrame
    """The rows of those passes, and their ordinal."""

    passes: int
    """How many passes there were."""

    passes_alike: int
    """How many of them have this list."""


def typical_pass(kernels: pl.DataFrame) -> TypicalPass:
    """The most common list of kernels, and the passes that have it.

    Two passes have the same list where the kernels of each region agree in number, and
    one by one in role and name. Of lists that are equally common, that of the earliest
    pass counts.

    Args:
        kernels: `schema.KERNELS` of one (arm, experiment), and any columns more.
    """
    numbered = kernels.sort(*GRAPH_PASS_KEYS, "region", "node").with_columns(
        ordinal=pl.int_range(pl.len(), dtype=pl.Int64).over(*GRAPH_PASS_KEYS, "region"),
        _kind=pl.struct("region", "role", "name").rank("dense"),
    )
    lists = numbered.group_by(GRAPH_PASS_KEYS, maintain_order=True).agg("_kind")
    ranked = (
        lists.with_row_index("_place")
        .group_by("_kind")
        .agg(pl.len(), pl.col("_place").min())
        .sort("len", "_place", descending=[True, False])
    )
    alike = lists.join(ranked.head(1), on="_kind", how="semi").select(GRAPH_PASS_KEYS)
    rows = numbered.drop("_kind").join(alike, on=GRAPH_PASS_KEYS, how="semi")
    return TypicalPass(
        kernels=rows.join(alike.head(1), on=GRAPH_PASS_KEYS, how="semi")
        .select("region", "ordinal", "role", *_CODE)
        .sort("region", "ordinal"),
        alike=rows,
        passes=lists.height,
        passes_alike=alike.height,
    )
