"""CUDA graphs in exports of Nsight Systems: their nodes, or replays as a whole."""

from typing import Final

import polars as pl

from layerscope.ingest.database import Database
from layerscope.ingest.nsys_ids import process_of
from layerscope.trace import TraceLog

REPLAYS: Final = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
NODES: Final = "CUDA_GRAPH_NODE_EVENTS"

_GRAPH_SHIFT: Final = 1 << 32
_MOST_CLONES: Final = 8  # of a node, one from another; two are usual


def with_graphs(work: pl.DataFrame, database: Database) -> pl.DataFrame:
    """`work` and Int64 columns ``graph`` and ``graph_node``, null outside graphs.

    CUPTI numbers nodes by graph (the upper half) and within it. Instantiating a graph
    clones its nodes; where the file tells of which, a node is called by the number of
    the one that was captured, which all executable graphs made of it share.

    Args:
        work: Int64 columns ``process``, ``graphNodeId`` and ``graphId``, and others;
            0 is no graph.
        database: where it is from.
    """
    node = pl.when(pl.col("graphNodeId") != 0).then("graphNodeId")
    graph = pl.when(pl.col("graphId") != 0).then("graphId")
    above = pl.col("graphNodeId") // _GRAPH_SHIFT
    numbered = work.with_columns(graph_node=node, graph=graph).with_columns(
        graph=pl.coalesce("graph", pl.when(above > 0).then(above))
    )
    if numbered["graph_node"].null_count() == numbered.height:
        return numbered
    originals = _originals(database)
    for _ in range(_MOST_CLONES):
        found = numbered.join(
            originals,
            on=["process", "graph_node"],
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        if found["original"].null_count() == found.height:
            break
        numbered = found.with_columns(
            graph_node=pl.coalesce("original", "graph_node")
        ).drop("original")
    return numbered


def graph_ranges(database: Database, log: TraceLog) -> pl.DataFrame:
    """Replays that were recorded as one row each, as ranges on their device.

    Args:
        database: an export.
        log: is told that their kernels are missing.

    Returns:
        Columns of `schema.TRACE_RANGES`; the thread is null.
    """
    numbers = ("start", "end", "deviceId", "streamId", "globalPid", "graphId")
    replays = database.frame(REPLAYS, numbers)
    log.add(
        "untrusted",
        "replays of CUDA graphs whose kernels the file lacks: each is one row; record "
        "with nsys profile --cuda-graph-trace=node",
        replays.height,
        about="kernels missing",
    )
    # Both are 0 where CUPTI could not tell them.
    timed = replays.filter((pl.col("start") != 0) | (pl.col("end") != 0))
    number = pl.col("graphId").cast(pl.String)
    return timed.select(
        kind=pl.lit("graph"),
        name=pl.coalesce(pl.format("CUDA graph {}", number), pl.lit("CUDA graph")),
        process=process_of("globalPid"),
        thread=pl.lit(None, pl.Int64),
        device="deviceId",
        stream="streamId",
        start_ns="start",
        end_ns="end",
    )


def _originals(database: Database) -> pl.DataFrame:
    """Of each cloned node the one it was cloned from, where there is only one."""
    nodes = database.frame(NODES, ["globalTid", "graphNodeId", "originalGraphNodeId"])
    clones = nodes.filter(
        pl.col("graphNodeId") != pl.col("originalGraphNodeId"),
        pl.col("originalGraphNodeId") != 0,
    ).select(
        process=process_of("globalTid"),
        graph_node="graphNodeId",
        original="originalGraphNodeId",
    )
    return (
        clones.unique()
        .group_by("process", "graph_node")
        .agg(pl.col("original").first(), pl.len())
        .filter(pl.col("len") == 1)
        .drop("len")
    )
