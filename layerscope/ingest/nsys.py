"""Reads what Nsight Systems exports to SQLite, of schema 2.9 (2022) and later.

Tables and columns come and go with the versions, and a table is only there where it has
rows; so each is asked for what it has. Ids of calls are unique within a process.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from layerscope.ingest.assembling import Rows, assemble
from layerscope.ingest.content import Content
from layerscope.ingest.database import Database, opened_content
from layerscope.ingest.formats import Format
from layerscope.ingest.nsys_facts import gpus_of, session_start_ns, written_by
from layerscope.ingest.nsys_graphs import graph_ranges, with_graphs
from layerscope.ingest.nsys_ids import process_of, thread_of
from layerscope.progress import Progress
from layerscope.trace import Trace, TraceLog, TraceSource

KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
FILLS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
RANGES: Final = "NVTX_EVENTS"

_PLACE: Final = (
    *("start", "end", "deviceId", "contextId", "streamId", "correlationId"),
    *("globalPid", "graphNodeId", "graphId"),
)
_KERNEL_NAMES: Final = ("demangledName", "shortName", "mangledName")
_SHAPE: Final = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_NEEDS: Final = ("registersPerThread", "staticSharedMemory", "dynamicSharedMemory")
_RENAMED: Final = {
    "start": "start_ns",
    "end": "end_ns",
    "deviceId": "device",
    "contextId": "context",
    "streamId": "stream",
    "correlationId": "correlation",
    "registersPerThread": "registers",
    **{name: f"{name[:-1]}_{name[-1].lower()}" for name in _SHAPE},
}
_COPY_NAMES: Final = dict(  # ENUM_CUDA_MEMCPY_OPER, worded as Kineto words them
    enumerate(
        (
            *("Memcpy HtoD", "Memcpy DtoH", "Memcpy HtoA", "Memcpy AtoH"),
            *("Memcpy AtoA", "Memcpy AtoD", "Memcpy DtoA", "Memcpy DtoD"),
            *("Memcpy HtoH", "Memcpy PtoP"),
        ),
        start=1,
    )
)
_RANGE_TYPES: Final = (59, 60)  # pushed and popped, started and ended
_VERSION: Final = r"(_ptsz|_ptds)?(_v\d+)?(_ptsz|_ptds)?$"
"""What the names of calls end in: the version of CUDA that they have existed since."""


def read(content: Content, log: TraceLog, progress: Progress) -> Trace:
    """The trace in an export of Nsight Systems.

    Device numbers are CUDA's own, except where processes use one number for different
    GPUs; then they are those of the machine. The graph of a kernel is its executable
    graph, and its node the one that was captured, where the file leads back to it.
    Replays that were recorded as a whole become ranges on their device and are noted
    as untrusted, since the file lacks their kernels.

    Raises:
        InputError: it cannot be read as a database.
    """
    with opened_content(content, log, progress) as database:
        database.expect(KERNELS, COPIES, FILLS, CALLS, RANGES)
        work = with_graphs(_work(database), database)
        calls = _calls(database)
        work = _with_processes(work, calls)
        ranges = pl.concat(
            [_ranges(database), graph_ranges(database, log)], how="diagonal"
        )
        work, ranges, devices = gpus_of(work, ranges, database, log)
        source = TraceSource(
            path=content.name,
            format=Format.NSYS,
            written_by=written_by(database),
            bytes=content.bytes,
        )
        start_ns = session_start_ns(database)
    rows = _of_one_process(Rows(work, _telling(calls, work), ranges))
    return assemble(source, rows, log, devices=devices, unix_ns=start_ns)


def _work(database: Database) -> pl.DataFrame:
    """Kernels, copies and fills: columns of the trace, and ids of graph nodes."""
    kernels = database.frame(KERNELS, [*_PLACE, *_KERNEL_NAMES, *_SHAPE, *_NEEDS])
    kernels = _named(kernels, _KERNEL_NAMES, database).with_columns(
        kind=pl.lit("kernel"),
        shared_bytes=pl.col("staticSharedMemory") + pl.col("dynamicSharedMemory"),
    )
    copies = database.frame(COPIES, [*_PLACE, "copyKind"]).with_columns(
        kind=pl.lit("copy"),
        name=pl.col("copyKind").replace_strict(
            _COPY_NAMES, default="Memcpy", return_dtype=pl.String
        ),
    )
    fills = database.frame(FILLS, _PLACE).with_columns(
        kind=pl.lit("fill"), name=pl.lit("Memset")
    )
    work = pl.concat([kernels, copies, fills], how="diagonal").rename(_RENAMED)
    return work.with_columns(process=process_of("globalPid"))


def _calls(database: Database) -> pl.DataFrame:
    ids = ("globalTid", "correlationId", "nameId")
    calls = database.frame(CALLS, ["start", "end", *ids])
    return _named(calls, ["nameId"], database).select(
        start_ns="start",
        end_ns="end",
        process=process_of("globalTid"),
        thread=thread_of("globalTid"),
        name=pl.col("name").str.replace(_VERSION, ""),
        correlation="correlationId",
    )


def _ranges(database: Database) -> pl.DataFrame:
    ranges = database.frame(
        RANGES,
        ["start", "end", "globalTid", "textId"],
        ["text"],
        only={"eventType": _RANGE_TYPES},
    )
    return _named(ranges, ["textId"], database).select(
        kind=pl.lit("annotation"),
        name=pl.coalesce("text", "name"),
        process=process_of("globalTid"),
        thread=thread_of("globalTid"),
        start_ns="start",
        end_ns="end",
    )


def _named(frame: pl.DataFrame, ids: Sequence[str], database: Database) -> pl.DataFrame:
    """`frame` and a column ``name``: the text of the first of `ids` that has one."""
    texts = database.texts(
        "StringIds", "value", pl.concat([frame[each] for each in ids])
    ).filter(pl.col("text") != "")
    for each in ids:
        frame = frame.join(
            texts.select(pl.col("id").alias(each), pl.col("text").alias(f"_{each}")),
            on=each,
            how="left",
            maintain_order="left",
        )
    found = [f"_{each}" for each in ids]
    return frame.with_columns(name=pl.coalesce(found)).drop(found)


def _with_processes(work: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """`work`, whose rows without a process take that of the only call they can be of.

    Tables that users made smaller lack the column.
    """
    if not work["process"].has_nulls():
        return work
    callers = (
        calls.drop_nulls(["correlation", "process"])
        .group_by("correlation")
        .agg(_caller=pl.col("process").first(), _callers=pl.col("process").n_unique())
        .filter(pl.col("_callers") == 1)
        .drop("_callers")
    )
    return (
        work.join(callers, on="correlation", how="left", maintain_order="left")
        .with_columns(process=pl.coalesce("process", "_caller"))
        .drop("_caller")
    )


def _telling(calls: pl.DataFrame, work: pl.DataFrame) -> pl.DataFrame:
    """The calls that work is linked to, and those that should have launched some."""
    keys = work.select("process", "correlation").drop_nulls("correlation").unique()
    keys = keys.with_columns(_linked=True)
    joined = calls.join(
        keys,
        on=["process", "correlation"],
        how="left",
        nulls_equal=True,
        maintain_order="left",
    )
    is_launch = pl.col("name").str.contains("Launch").fill_null(value=False)
    return joined.filter(pl.col("_linked").is_not_null() | is_launch).drop("_linked")


def _of_one_process(rows: Rows) -> Rows:
    """`rows` without numbers of processes, where there is only one of them."""
    frames = (rows.kernels, rows.calls, rows.ranges)
    processes = pl.concat([frame["process"] for frame in frames]).drop_nulls()
    if processes.n_unique() > 1:
        return rows
    return Rows(*(frame.with_columns(process=None) for frame in frames))
