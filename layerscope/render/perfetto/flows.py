"""Which flows along the edges of its graph every kernel is part of."""

from typing import Final

import polars as pl

from layerscope.passes import REPLAY_KEYS
from layerscope.render.perfetto.arguments import FLOWS

AFTER, AFTER_PROGRAMMATIC = "after", "after_programmatic"
"""Columns of the nodes whose edges lead into a kernel, List(Int64)."""

REPLAY_NUMBER: Final = "replay_number"
"""Column of numbers that are faster to sort and join by than what names a replay."""


def number_replays() -> pl.Expr:
    """`REPLAY_NUMBER` of kernels in the order of their replays, Int64 from 0."""
    return pl.struct(REPLAY_KEYS).rle_id().cast(pl.Int64).alias(REPLAY_NUMBER)


def with_flows(
    kernels: pl.DataFrame, edges: pl.DataFrame, first: int
) -> tuple[pl.DataFrame, int]:
    """Kernels, the flows along the edges between them, and what they came after.

    A flow has a number and no name. So each kernel also names the nodes whose edges
    lead into it, those of programmatic edges apart.

    Args:
        kernels: `median_pass.PICTURED` of one graph, of each replay the same nodes,
            with `REPLAY_NUMBER` and any columns more.
        edges: `schema.EDGES` of that graph; those whose ends are not both among the
            nodes have no flows.
        first: the number of the first flow.

    Returns:
        `kernels` in their order with `FLOWS`, `AFTER` and `AFTER_PROGRAMMATIC`, and the
        number of the next flow.
    """
    nodes = kernels["node"].unique()
    drawn = (
        edges.filter(pl.col("source").is_in(nodes), pl.col("target").is_in(nodes))
        .select("source", "target", "programmatic")
        .unique(maintain_order=True)
        .with_columns(_flow=pl.int_range(pl.len(), dtype=pl.Int64))
    )
    replay = pl.col(REPLAY_NUMBER)
    nothing = pl.lit([], dtype=pl.List(pl.Int64))
    joined = (
        kernels.with_columns(_first=first + drawn.height * replay)
        .join(_by_node(drawn), on="node", how="left", maintain_order="left")
        .with_columns(pl.col(FLOWS, AFTER, AFTER_PROGRAMMATIC).fill_null(nothing))
        .with_columns(pl.col(FLOWS) + pl.col("_first"))
    )
    replays = kernels.select(replay.max() + 1).item() or 0
    return joined.drop("_first"), first + drawn.height * replays


def _by_node(edges: pl.DataFrame) -> pl.DataFrame:
    """The edges that lead from or into each node, and where the latter come from."""
    source, is_early = pl.col("source"), pl.col("programmatic")
    into = edges.group_by(node="target").agg(
        source.filter(~is_early).sort().alias(AFTER),
        source.filter(is_early).sort().alias(AFTER_PROGRAMMATIC),
    )
    ends = [edges.select("_flow", node=end) for end in ("source", "target")]
    touching = pl.concat(ends).group_by("node").agg(pl.col("_flow").sort().alias(FLOWS))
    return touching.join(into, on="node", how="left")
