"""Writes small SQLite files with the tables of other tools, version by version."""

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final, TypeAlias

from layerscope.ingest import nsys, rocpd
from layerscope.ingest.content import contents_of
from layerscope.ingest.database_kind import sqlite_kind
from layerscope.ingest.formats import Format
from layerscope.progress import SilentProgress
from layerscope.trace import Trace, TraceLog

Row: TypeAlias = dict[str, Any]

NSYS_VERSIONS: Final = (
    *(("2022.1.3", "2.9.1"), ("2022.4", "3.0.0"), ("2023.1.2", "3.1.2")),
    *(("2023.2.3", "3.1.7"), ("2023.3.3", "3.4.0"), ("2023.4.4", "3.7.2")),
    *(("2024.5.1", "3.13.2"), ("2024.6.2", "3.16.1"), ("2025.1.1", "3.17.1")),
    *(("2025.1.3", "3.17.2"), ("2025.3.2", "3.20.3"), ("2025.5.1", "3.23.3")),
    *(("2025.5.2", "3.24.0"), ("2026.1.1", "3.24.14"), ("2026.1.3", "3.24.18")),
    ("2026.2.1", "3.25.0"),
)
"""Versions of Nsight Systems, and the schemas that they export."""

NEWEST: Final = "3.25.0"

_KERNEL: Final = (
    *("start", "end", "deviceId", "contextId", "streamId", "correlationId"),
    *("globalPid", "demangledName", "shortName", "mangledName", "launchType"),
    *("cacheConfig", "registersPerThread", "gridX", "gridY", "gridZ"),
    *("blockX", "blockY", "blockZ", "staticSharedMemory", "dynamicSharedMemory"),
    *("localMemoryPerThread", "localMemoryTotal", "gridId", "sharedMemoryExecuted"),
    *("graphNodeId", "sharedMemoryLimitConfig"),
)
_COPY: Final = (
    *("start", "end", "deviceId", "contextId", "streamId", "correlationId"),
    *("globalPid", "bytes", "copyKind", "graphNodeId"),
)
_FILL: Final = (
    *("start", "end", "deviceId", "contextId", "streamId", "correlationId"),
    *("globalPid", "value", "bytes", "graphNodeId", "memKind"),
)
_CALL: Final = (
    *("start", "end", "eventClass", "globalTid", "correlationId", "nameId"),
    *("returnValue", "callchainId"),
)
_RANGE: Final = (
    *("start", "end", "eventType", "rangeId", "category", "color", "text"),
    *("globalTid", "endGlobalTid", "textId", "domainId"),
)
_REPLAY: Final = (
    *("start", "end", "deviceId", "contextId", "streamId", "correlationId"),
    *("globalPid", "graphId", "graphExecId"),
)
_NODE: Final = (
    *("start", "end", "eventClass", "globalTid", "nameId"),
    *("graphNodeId", "originalGraphNodeId"),
)
_ADDED: Final[
    dict[str, dict[tuple[int, ...], tuple[str, ...]]]
] = {  # by the first schema that has it
    "CUPTI_ACTIVITY_KIND_KERNEL": {
        (3, 13, 2): ("greenContextId",),
        (3, 24, 14): (
            *("qmdBulkReleaseDone", "qmdPreexitDone", "qmdLastCtaDone", "graphId"),
            *("clusterX", "clusterY", "clusterZ", "clusterSchedulingPolicy"),
            *("maxPotentialClusterSize", "maxActiveClusters"),
            "sharedMemoryRequestedPercentage",
        ),
        (3, 24, 18): ("tensorSizeMinusOneElements",),
    },
    "CUPTI_ACTIVITY_KIND_MEMCPY": {(3, 24, 0): ("copyCount",)},
    "NVTX_EVENTS": {(3, 16, 1): ("jsonTextId", "jsonText", "binaryData")},
    "TARGET_INFO_SESSION_START_TIME": {(3, 24, 0): ("systemClockNs",)},
}
_NSYS: Final = {
    "CUPTI_ACTIVITY_KIND_KERNEL": _KERNEL,
    "CUPTI_ACTIVITY_KIND_MEMCPY": _COPY,
    "CUPTI_ACTIVITY_KIND_MEMSET": _FILL,
    "CUPTI_ACTIVITY_KIND_RUNTIME": _CALL,
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": _REPLAY,
    "CUDA_GRAPH_NODE_EVENTS": _NODE,
    "NVTX_EVENTS": _RANGE,
    "TARGET_INFO_SESSION_START_TIME": ("utcEpochNs", "utcTime", "localTime"),
}


def nsys_file(
    path: Path, tables: Mapping[str, list[Row]], schema: str = NEWEST
) -> Path:
    """An export of Nsight Systems: rows name what they hold, the rest is null.

    Texts of names are given in place of their numbers.
    """
    version = tuple(map(int, schema.split(".")))
    product = {there: written for written, there in NSYS_VERSIONS}[schema]
    strings: dict[str, int] = {}
    written: dict[str, list[Row]] = {}
    for table, rows in tables.items():
        columns = list(_NSYS.get(table, ()))
        for since, added in _ADDED.get(table, {}).items():
            columns += added if version >= since else ()
        written[table] = [
            {**dict.fromkeys(columns), **_numbered(row, strings)} for row in rows
        ]
    written["StringIds"] = [{"id": at, "value": text} for text, at in strings.items()]
    facts = {"EXPORT_PRODUCT_VERSION": product, "EXPORT_SCHEMA_VERSION": schema}
    metadata = "META_DATA_EXPORT" if version >= (3, 7) else "EXPORT_META_DATA"
    written[metadata] = [{"name": k, "value": v} for k, v in facts.items()]
    return database_file(path, written)


def database_file(
    path: Path, tables: Mapping[str, list[Row]], statements: Iterable[str] = ()
) -> Path:
    """An SQLite file of tables; all rows of a table have the columns of its first."""
    with closing(sqlite3.connect(path)) as connection:
        for table, rows in tables.items():
            columns = list(rows[0]) if rows else ["id"]
            _create(connection, table, columns)
            places = ", ".join("?" * len(columns))
            connection.executemany(
                f'INSERT INTO "{table}" VALUES ({places})',  # noqa: S608 (own names)
                [tuple(row[name] for name in columns) for row in rows],
            )
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def rocpd_tables(suffix: str, tables: Mapping[str, list[Row]]) -> dict[str, list[Row]]:
    """Tables of one run as rocpd names them; ``rocpd_`` and the run's id are added."""
    return {f"rocpd_{name}{suffix}": rows for name, rows in tables.items()}


def numbered(texts: Sequence[str], column: str = "string") -> list[Row]:
    """Rows of a table of texts, from 1."""
    return [{"id": at, column: text} for at, text in enumerate(texts, 1)]


def read(path: Path, log: TraceLog | None = None) -> Trace:
    """The trace in an export of Nsight Systems or a rocpd database, told by tables."""
    (content,) = contents_of(path)
    with content.on_disk(TraceLog()) as plain:
        kind = sqlite_kind(plain, content.name)
    reader = nsys.read if kind is Format.NSYS else rocpd.read
    return reader(content, log or TraceLog(), SilentProgress())


def _numbered(row: Row, strings: dict[str, int]) -> Row:
    """`row` with numbers for the texts of columns that refer to ``StringIds``."""
    return {
        name: strings.setdefault(value, len(strings) + 1)
        if isinstance(value, str) and name.endswith(("Name", "nameId", "textId"))
        else value
        for name, value in row.items()
    }


def _create(connection: sqlite3.Connection, table: str, columns: Sequence[str]) -> None:
    named = ", ".join(f'"{name}"' for name in columns)
    connection.execute(f'CREATE TABLE "{table}" ({named})')
