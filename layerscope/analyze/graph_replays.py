"""Replays of graphs in a trace, and whether all their kernels were recorded.

Profilers lose kernels of graphs: whole replays, their ends, or some nodes in between. A
device then looks idle that is not.
"""

from typing import Final

import polars as pl

from layerscope.schema import LAUNCH_KEYS
from layerscope.trace_names import GRAPH_LAUNCH

FAR_SHORT: Final = 0.75
"""Share of the kernels of the longest replay below which a like one looks cut. Graphs
of other batch sizes differ by some kernels of their own, but by less."""

FEWEST_NODES: Final = 30
"""Kernels of the longest replay from which a shorter one looks cut: graphs of few
kernels are pieces of a model, of which some begin alike."""

FITS: Final = 0.5
"""Share of the missing kernels' time that must fit into the idle time of a replay and
after it: where they ran unseen, there is a hole as long as they took."""

_GRAPH: Final = ("process", "_graph")
_NODE_BITS: Final = 1 << 32
"""CUPTI's node ids carry the graph in their upper half."""


def graph_launches(calls: pl.DataFrame) -> pl.DataFrame:
    """The calls that launch whole graphs: rows of `schema.TRACE_CALLS`."""
    return calls.filter(pl.col("name").str.contains(GRAPH_LAUNCH))


def launches_without_kernels(launched: pl.DataFrame, calls: pl.DataFrame) -> int:
    """How many launches of graphs brought nothing that the trace has.

    Those before the first kernel and after the last are left out: tools record calls
    for longer than kernels.

    Args:
        launched: from `trace_gaps.with_launches`, of all devices.
        calls: `schema.TRACE_CALLS`.
    """
    if launched.is_empty():
        return graph_launches(calls).height
    first, last = launched.select(
        first=pl.col("start_ns").min(), last=pl.col("end_ns").max()
    ).row(0)
    return (
        graph_launches(calls)
        .filter(pl.col("start_ns").is_between(first, last))
        .join(launched, on=LAUNCH_KEYS, how="anti", nulls_equal=True)
        .height
    )


def missing_nodes(launched: pl.DataFrame) -> int:
    """How many nodes of graphs were not seen, of those that another replay ran.

    Of every graph that is known by the ids of its nodes: nodes times replays, less the
    nodes seen in each replay.

    Args:
        launched: from `trace_gaps.with_launches`, of all devices.
    """
    known = launched.filter(
        pl.col("graph_node").is_not_null(), pl.col("correlation").is_not_null()
    ).with_columns(_graph=pl.col("graph").fill_null(pl.col("graph_node") // _NODE_BITS))
    expected = known.group_by(_GRAPH).agg(
        expected=pl.col("graph_node").n_unique() * pl.col("correlation").n_unique()
    )
    seen = known.select(*_GRAPH, "correlation", "graph_node").unique()
    return int(expected["expected"].sum()) - seen.height


def short_replays(launched: pl.DataFrame) -> int:
    """How many replays lack kernels that another of the same graph has.

    For traces without node ids. Two replays are taken for the same graph if they begin
    with the same kernel, and all that the shorter ran is in the longer. The shorter
    lacks kernels if it is `FAR_SHORT` of the longer, and the device was idle within or
    behind it for as long as a part (`FITS`) of the rest takes. Of several launches of
    one graph in a step, the last may be shorter: pieces of a model end with one.

    Args:
        launched: from `trace_gaps.with_launches`, of all devices.
    """
    unknown = launched.filter("is_replay", pl.col("graph_node").is_null())
    if unknown.is_empty():
        return 0
    replays = _replays(launched)
    longest = replays.sort("kernels", descending=True, maintain_order=True).unique(
        "first", keep="first", maintain_order=True
    )
    compared = replays.join(
        longest.select("first", full="kernels", full_ns="sum_ns", full_replay="replay"),
        on="first",
    ).filter(
        pl.col("full") >= FEWEST_NODES,
        pl.col("kernels") < FAR_SHORT * pl.col("full"),
        pl.col("idle_ns") >= FITS * (pl.col("full_ns") - pl.col("sum_ns")),
        ~pl.col("ends_step"),
    )
    return compared.height - _unlike(compared, unknown)


def _replays(launched: pl.DataFrame) -> pl.DataFrame:
    """The replays without node ids: one row each, in order of starts."""
    is_last = pl.col("replay").is_last_distinct().over("device", "step", "first")
    begun = pl.col("replay").n_unique().over("device", "step", "first")
    return (
        launched.with_columns(after_ns=pl.col("gap_ns").shift(-1).over("device"))
        .filter("is_replay", pl.col("graph_node").is_null())
        .with_columns(replay=pl.struct(LAUNCH_KEYS))
        .group_by("replay", maintain_order=True)
        .agg(
            pl.col("device", "step").first(),
            first=pl.col("name").first(),
            kernels=pl.len(),
            sum_ns=pl.col("duration_ns").sum(),
            idle_ns=pl.col("gap_ns").slice(1).sum()
            + pl.col("after_ns").last().fill_null(0),
        )
        .with_columns(ends_step=pl.col("step").is_not_null() & is_last & (begun > 1))
    )


def _unlike(compared: pl.DataFrame, kernels: pl.DataFrame) -> int:
    """How many of `compared` ran a kernel more often than the longest did."""
    counts = (
        kernels.with_columns(replay=pl.struct(LAUNCH_KEYS))
        .group_by("replay", "name")
        .agg(times=pl.len())
    )
    full = counts.rename({"replay": "full_replay", "times": "full_times"})
    return (
        compared.select("replay", "full_replay")
        .join(counts, on="replay", nulls_equal=True)
        .join(full, on=["full_replay", "name"], how="left", nulls_equal=True)
        .filter(pl.col("times") > pl.col("full_times").fill_null(0))["replay"]
        .n_unique()
    )
