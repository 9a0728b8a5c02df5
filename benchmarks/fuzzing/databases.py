"""Small whole databases of Nsight Systems and of rocprofv3."""

import sqlite3
import tempfile
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

_KERNELS: Final = 24


def nsys_database() -> bytes:
    """An export of Nsight Systems, with a graph that was not traced by node."""
    return _database(_NSYS, _nsys_rows())


def rocpd_database() -> bytes:
    """A rocpd database of one process."""
    return _database(_ROCPD, _rocpd_rows())


_NSYS: Final = """
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
CREATE TABLE META_DATA_EXPORT (name TEXT, value TEXT);
CREATE TABLE TARGET_INFO_SESSION_START_TIME (utcEpochNs INTEGER, utcTime TEXT);
CREATE TABLE TARGET_INFO_GPU (id INTEGER, name TEXT, smCount INTEGER,
  totalMemory INTEGER, computeMajor INTEGER, computeMinor INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER, "end" INTEGER,
  deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
  globalPid INTEGER, demangledName INTEGER, shortName INTEGER, mangledName INTEGER,
  registersPerThread INTEGER, gridX INTEGER, gridY INTEGER, gridZ INTEGER,
  blockX INTEGER, blockY INTEGER, blockZ INTEGER, staticSharedMemory INTEGER,
  dynamicSharedMemory INTEGER, graphNodeId INTEGER, graphId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER, "end" INTEGER,
  eventClass INTEGER, globalTid INTEGER, correlationId INTEGER, nameId INTEGER,
  returnValue INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER, "end" INTEGER,
  deviceId INTEGER, contextId INTEGER, streamId INTEGER, correlationId INTEGER,
  globalPid INTEGER, bytes INTEGER, copyKind INTEGER, graphNodeId INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start INTEGER, "end" INTEGER,
  deviceId INTEGER, graphId INTEGER, contextId INTEGER, streamId INTEGER,
  correlationId INTEGER, globalPid INTEGER);
CREATE TABLE NVTX_EVENTS (start INTEGER, "end" INTEGER, eventType INTEGER,
  rangeId INTEGER, text TEXT, globalTid INTEGER, endGlobalTid INTEGER,
  textId INTEGER, domainId INTEGER);
"""

_PROCESS: Final = 77 << 24


def _nsys_rows() -> dict[str, list[tuple[Any, ...]]]:
    names = ["void gemm<float>(float*)", "gemm", "_Z4gemm", "cudaLaunchKernel_v7000"]
    work = [(10 * at, 10 * at + 8, 0, 1, 7, at) for at in range(1, _KERNELS)]
    return {
        "StringIds": list(enumerate([*names, "layer 0"])),
        "META_DATA_EXPORT": [("EXPORT_PRODUCT_VERSION", "2025.5.1.1")],
        "TARGET_INFO_SESSION_START_TIME": [(1782967788000000000, "now")],
        "TARGET_INFO_GPU": [(0, "NVIDIA H200", 132, 1 << 37, 9, 0)],
        "CUPTI_ACTIVITY_KIND_KERNEL": [
            (*each, _PROCESS, 0, 1, 2, 32, 4, 1, 1, 128, 1, 1, 0, 64, each[0] % 5, 6)
            for each in work
        ],
        "CUPTI_ACTIVITY_KIND_RUNTIME": [
            (at, at + 1, 0, _PROCESS + 9, at, 3, 0) for at in range(1, _KERNELS)
        ],
        "CUPTI_ACTIVITY_KIND_MEMCPY": [
            (*each, _PROCESS, 64, 1, None) for each in work[:3]
        ],
        "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": [(5, 9, 0, 6, 1, 7, 3, _PROCESS)],
        "NVTX_EVENTS": [
            (1, 200, 59, None, "step", _PROCESS + 9, None, None, 0),
            (2, 100, 60, 4, None, _PROCESS + 9, None, 4, 0),
            (3, None, 39, None, "thread", _PROCESS + 9, None, None, 0),
        ],
    }


_ID: Final = "_0000aaaa_1111_2222_3333_444455556666"

_ROCPD: Final = f"""
CREATE TABLE rocpd_metadata{_ID} (id INTEGER PRIMARY KEY, tag TEXT, value TEXT);
CREATE TABLE rocpd_string{_ID} (id INTEGER PRIMARY KEY, guid TEXT, string TEXT);
CREATE TABLE rocpd_info_process{_ID} (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER,
  ppid INTEGER, pid INTEGER, init INTEGER, fini INTEGER, command TEXT);
CREATE TABLE rocpd_info_thread{_ID} (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER,
  ppid INTEGER, pid INTEGER, tid INTEGER, name TEXT);
CREATE TABLE rocpd_info_agent{_ID} (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER,
  pid INTEGER, type TEXT, absolute_index INTEGER, logical_index INTEGER,
  type_index INTEGER, name TEXT, product_name TEXT, extdata TEXT);
CREATE TABLE rocpd_info_kernel_symbol{_ID} (id INTEGER PRIMARY KEY, guid TEXT,
  nid INTEGER, pid INTEGER, code_object_id INTEGER, kernel_name TEXT,
  display_name TEXT, arch_vgpr_count INTEGER, accum_vgpr_count INTEGER);
CREATE TABLE rocpd_event{_ID} (id INTEGER PRIMARY KEY, guid TEXT, category_id INTEGER,
  stack_id INTEGER, parent_stack_id INTEGER, correlation_id INTEGER, extdata TEXT);
CREATE TABLE rocpd_region{_ID} (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER,
  pid INTEGER, tid INTEGER, start INTEGER, "end" INTEGER, name_id INTEGER,
  event_id INTEGER, extdata TEXT);
CREATE TABLE rocpd_kernel_dispatch{_ID} (id INTEGER PRIMARY KEY, guid TEXT,
  nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER, kernel_id INTEGER,
  dispatch_id INTEGER, queue_id INTEGER, stream_id INTEGER, start INTEGER,
  "end" INTEGER, private_segment_size INTEGER, group_segment_size INTEGER,
  workgroup_size_x INTEGER, workgroup_size_y INTEGER, workgroup_size_z INTEGER,
  grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER,
  region_name_id INTEGER, event_id INTEGER, extdata TEXT);
"""


def _rocpd_rows() -> dict[str, list[tuple[Any, ...]]]:
    size = (0, 64, 128, 1, 1, 512, 1, 1, 3)
    strings = ["HIP_RUNTIME_API_EXT", "MARKER_CORE_API", "hipLaunchKernel", "step"]
    rows: dict[str, list[tuple[Any, ...]]] = {
        "metadata": [(1, "schema_version", "3"), (2, "guid", _ID)],
        "string": [(at, _ID, text) for at, text in enumerate(strings)],
        "info_process": [(1, _ID, 1, 0, 77, 0, 0, "python")],
        "info_thread": [(1, _ID, 1, 0, 1, 9, "main")],
        "info_agent": [(1, _ID, 1, 1, "GPU", 4, 0, 0, "gfx942", "MI300X", "{}")],
        "info_kernel_symbol": [(1, _ID, 1, 1, 1, "_Z4gemm.kd", "gemm(float*)", 64, 0)],
        "event": [(at, _ID, at // 22, at, 0, 0, "{}") for at in range(_KERNELS)],
        "region": [
            (at, _ID, 1, 1, 1, at, at + 1, 2 + at // 22, at, "{}")
            for at in range(_KERNELS)
        ],
        "kernel_dispatch": [
            (*(at, _ID, 1, 1, 1, 1, 1, at, 1, 1, 10 * at, 10 * at + 8), *size, at, "{}")
            for at in range(1, _KERNELS)
        ],
    }
    return {f"rocpd_{name}{_ID}": values for name, values in rows.items()}


def _database(schema: str, rows: Mapping[str, list[tuple[Any, ...]]]) -> bytes:
    with tempfile.NamedTemporaryFile() as file:
        with closing(sqlite3.connect(file.name)) as connection:
            connection.executescript(schema)
            for table, values in rows.items():
                marks = ", ".join("?" * len(values[0]))
                connection.executemany(
                    f'INSERT INTO "{table}" VALUES ({marks})',  # noqa: S608 (our own)
                    values,
                )
            connection.commit()
        return Path(file.name).read_bytes()
