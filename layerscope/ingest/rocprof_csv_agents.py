"""The GPUs that rocprofv3's file of agents describes."""

from collections.abc import Collection

import polars as pl

from layerscope.ingest.assembling import Rows
from layerscope.ingest.content import Content
from layerscope.ingest.csv_rows import csv_frames
from layerscope.ingest.rocprof_csv_tables import number
from layerscope.progress import SilentProgress
from layerscope.schema import INT
from layerscope.trace import TraceDevice, TraceLog


def devices_in(rows: Rows) -> set[int]:
    """The numbers of devices that have worked."""
    return set(rows.kernels["device"].drop_nulls().unique())


def agents_of(
    content: Content, used: Collection[int], log: TraceLog
) -> tuple[TraceDevice, ...]:
    """The GPUs in a file of agents, numbered as kernels are.

    rocprofv3 numbers agents by their place on the node, by that among the agents that
    it sees, or by that among GPUs (``--agent-index``); `used` tells which.
    """
    frames = list(csv_frames(content.chunks(log, SilentProgress()), log))
    text = pl.concat(frames)
    gpus = text.filter(
        pl.col("agent_type").str.strip_chars().str.to_uppercase() == "GPU"
    )
    seen = gpus.with_row_index("place").with_columns(pl.col("place").cast(INT))
    seen = seen.with_columns(
        number(name).alias(name)
        for name in ("node_id", "logical_node_id", "cu_count")
        if name in seen.columns
    )
    numberings = [
        name for name in ("logical_node_id", "node_id", "place") if name in seen.columns
    ]
    fitting = [name for name in numberings if set(used) <= set(seen[name])]
    by = [*fitting, *numberings][0]
    return tuple(
        TraceDevice(
            device=row[by],
            name=row.get("product_name") or "",
            architecture=row.get("name") or "",
            processors=row.get("cu_count") or 0,
        )
        for row in seen.iter_rows(named=True)
        if row[by] is not None
    )
