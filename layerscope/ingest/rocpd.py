"""Reads rocpd databases, which rocprofv3 writes since ROCm 7: schemas 3 and 4."""

import re
from dataclasses import dataclass
from typing import Final

import polars as pl

from layerscope.ingest.assembling import Rows, assemble, blocks, call_rows, kernel_name
from layerscope.ingest.content import Content
from layerscope.ingest.database import Database, opened_content
from layerscope.ingest.database_kind import ROCPD_KERNELS
from layerscope.ingest.formats import Format
from layerscope.ingest.rocpd_calls import regions
from layerscope.ingest.rocpd_devices import agents_of, placed
from layerscope.ingest.rocpd_run import RocpdRun, looked_up
from layerscope.progress import Progress
from layerscope.trace import Trace, TraceLog, TraceSource

MOST_RUNS: Final = 512
"""How many runs of a database are read; a run is a process."""

_LARGE: Final = ("kernel_dispatch", "memory_copy", "region", "event")
_AXES: Final = "xyz"
_MOST_KERNELS: Final = 1 << 32  # of a graph; more is a damaged number
_DISPATCH: Final = (
    *("kernel_id", "group_segment_size", "graph_exec_id", "graph_node_id"),
    *(f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in _AXES),
)
_VERSION: Final = re.compile(r"[\w.]{1,20}")


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class _Run:
    """What one run has; ``process`` is as its own system numbers it."""

    kernels: pl.DataFrame
    calls: pl.DataFrame
    ranges: pl.DataFrame
    agents: pl.DataFrame


def read(content: Content, log: TraceLog, progress: Progress) -> Trace:
    """The trace in a rocpd database, of all runs that were merged into it.

    Calls are linked by the stack id. Context is the queue of HSA, stream the stream of
    HIP, registers those for vectors and accumulators together; extents of launches are
    given in blocks. The clock counts from the start of the machine.

    Raises:
        InputError: it cannot be read as a database.
    """
    with opened_content(content, log, progress) as database:
        suffixes = [
            found[1] or ""
            for table in database.tables
            if (found := ROCPD_KERNELS.fullmatch(table))
        ]
        beyond = len(suffixes[MOST_RUNS:])
        log.add("dropped", f"runs beyond the first {MOST_RUNS}", beyond)
        tables = [RocpdRun(database, each) for each in suffixes[:MOST_RUNS]]
        database.expect(*(each.table(name) for each in tables for name in _LARGE))
        runs = [_run(each, log) for each in tables]
        source = TraceSource(
            path=content.name,
            format=Format.ROCPD,
            written_by=_written_by(database, tables),
            bytes=content.bytes,
        )
    kernels, calls, ranges, agents = (
        _together([getattr(run, name) for run in runs])
        for name in ("kernels", "calls", "ranges", "agents")
    )
    work = placed(kernels, agents, log)
    rows = _numbered(Rows(work.kernels, calls, ranges))
    rows = Rows(rows.kernels, call_rows(rows.calls, rows.kernels), rows.ranges)
    return assemble(source, rows, log, devices=work.devices)


def _run(run: RocpdRun, log: TraceLog) -> _Run:
    events = run.events()
    agents = agents_of(run)
    dispatches = _dispatches(run, events)
    _note_missing(run, events, dispatches, log)
    calls, ranges = regions(run, events)
    work = pl.concat([dispatches, _copies(run, events, agents)], how="diagonal")
    return _Run(work, calls, ranges, agents)


def _dispatches(run: RocpdRun, events: pl.DataFrame) -> pl.DataFrame:
    rows = run.work("kernel_dispatch", _DISPATCH).join(
        events, on="event_id", how="left", maintain_order="left"
    )
    names = run.kernel_names(rows["kernel_id"]).rename({"text": "name"})
    symbols = run.frame(
        "info_kernel_symbol", ["id", "arch_vgpr_count", "accum_vgpr_count"]
    )
    rows = looked_up(looked_up(rows, "kernel_id", names), "kernel_id", symbols)
    return rows.select(
        *("start_ns", "end_ns", "process", "context", "stream", "agent_id"),
        "correlation",
        kind=pl.lit("kernel"),
        name=kernel_name(),
        graph=pl.when(pl.col("graph_exec_id") != 0).then("graph_exec_id"),
        graph_node=pl.when(pl.col("graph_exec_id") != 0).then("graph_node_id"),
        shared_bytes="group_segment_size",
        registers=pl.col("arch_vgpr_count") + pl.col("accum_vgpr_count").fill_null(0),
        **{
            f"grid_{axis}": blocks(
                pl.col(f"grid_size_{axis}"), pl.col(f"workgroup_size_{axis}")
            )
            for axis in _AXES
        },
        **{f"block_{axis}": pl.col(f"workgroup_size_{axis}") for axis in _AXES},
    )


def _copies(run: RocpdRun, events: pl.DataFrame, agents: pl.DataFrame) -> pl.DataFrame:
    """Copies, each on the GPU that it writes to, or else on the one it reads."""
    numbers = ("name_id", "dst_agent_id", "src_agent_id")
    rows = run.work("memory_copy", numbers).join(
        events, on="event_id", how="left", maintain_order="left"
    )
    rows = looked_up(
        rows, "name_id", run.strings(rows["name_id"]).rename({"text": "name"})
    )
    rows = looked_up(rows, "dst_agent_id", agents.select("id", _writes="is_gpu"))
    target = pl.when("_writes").then("dst_agent_id")
    return rows.select(
        *("start_ns", "end_ns", "process", "context", "stream", "correlation", "name"),
        agent_id=pl.coalesce(target, "src_agent_id", "dst_agent_id", "agent_id"),
        kind=pl.lit("copy"),
    )


def _note_missing(
    run: RocpdRun, events: pl.DataFrame, kernels: pl.DataFrame, log: TraceLog
) -> None:
    """Say how many kernels of graphs the launches tell of that the file lacks."""
    launches = run.frame("graph_launch", ["event_id", "kernel_dispatch_count"])
    if launches.is_empty():
        return
    seen = kernels.group_by("correlation").agg(seen=pl.len().cast(pl.Int64))
    lacking = (
        launches.join(events, on="event_id")
        .join(seen.drop_nulls(), on="correlation", how="left")
        .select(
            pl.col("kernel_dispatch_count").clip(0, _MOST_KERNELS)
            - pl.col("seen").fill_null(0)
        )
        .filter(pl.col("kernel_dispatch_count") > 0)
    )
    log.add(
        "untrusted",
        "kernels of HIP graphs that the file lacks, as its graph launches tell",
        int(lacking["kernel_dispatch_count"].sum()),
        about="kernels missing",
    )


def _together(frames: list[pl.DataFrame]) -> pl.DataFrame:
    """All runs' rows, with a column ``run``."""
    return pl.concat(
        frame.with_columns(run=pl.lit(index, pl.Int64))
        for index, frame in enumerate(frames)
    )


def _numbered(rows: Rows) -> Rows:
    """`rows` with processes that differ between runs; null where there is only one.

    Two machines may have given the same number; then processes are counted from 0.
    """
    frames = (rows.kernels, rows.calls, rows.ranges)
    told = pl.concat([frame.select("run", "process") for frame in frames]).unique(
        maintain_order=True
    )
    if told.height <= 1:
        return Rows(*(frame.drop("run", "process") for frame in frames))
    if told["process"].n_unique() == told.height:
        return Rows(*(frame.drop("run") for frame in frames))
    counted = told.sort("run", "process").with_row_index("_number")
    return Rows(
        *(
            frame.join(
                counted,
                on=["run", "process"],
                how="left",
                nulls_equal=True,
                maintain_order="left",
            )
            .with_columns(process=pl.col("_number").cast(pl.Int64))
            .drop("run", "_number")
            for frame in frames
        )
    )


def _written_by(database: Database, runs: list[RocpdRun]) -> str:
    for run in runs[:1]:
        facts = database.pairs(run.table("metadata"), "tag", "value")
        version = facts.get("schema_version", "")
        if _VERSION.fullmatch(version):
            return f"rocprofv3, rocpd schema {version}"
    return "rocprofv3"
