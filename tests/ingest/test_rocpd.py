import json
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.ingest import rocpd
from layerscope.ingest.formats import Format
from layerscope.schema import TRACE_CALLS, TRACE_KERNELS, TRACE_RANGES, Schema
from layerscope.trace import Trace, TraceDevice, TraceNote, TraceSource
from tests.ingest.databases import Row, database_file, numbered, read, rocpd_tables

GUID: Final = "_0198f0a2_77b5_7cc1_b5a4_3f2f5d1a9c11"
OTHER: Final = "_0198f0a2_9d10_7e55_8a31_6f4e0c2b7d22"

CATEGORIES: Final = (
    *("KERNEL_DISPATCH", "HIP_RUNTIME_API_EXT", "HSA_CORE_API"),
    *("MARKER_CORE_RANGE_API", "MEMORY_COPY"),
)
STRINGS: Final = (
    *CATEGORIES,
    *("hipLaunchKernel", "hsa_signal_create", "hsa_queue_create"),
    *("roctxRangePush", "MEMORY_COPY_HOST_TO_DEVICE", "hipGraphLaunch"),
)


def string(text: str) -> int:
    """The number of a text in the table of strings."""
    return STRINGS.index(text) + 1


def event(number: int, category: str, stack: int, message: str = "") -> Row:
    """What a row is an event of; the correlation id is the user's, and 0."""
    return {
        "id": number,
        "category_id": string(category),
        "stack_id": stack,
        "correlation_id": 0,
        "extdata": json.dumps({"message": message}) if message else "{}",
    }


def dispatch(start: int, end: int, number: int, **given: Any) -> Row:  # noqa: ANN401 (values of a table)
    """A kernel of 1000 × 2 work-items in blocks of 256, on the second agent."""
    where = {"nid": 1, "pid": 70, "tid": 71, "agent_id": 2, "kernel_id": 5}
    sizes = {"grid_size_x": 1000, "grid_size_y": 2, "grid_size_z": 1}
    blocks = {"workgroup_size_x": 256, "workgroup_size_y": 1, "workgroup_size_z": 1}
    times = {"start": start, "end": end, "event_id": number}
    lines = {"queue_id": 3, "stream_id": 1, "group_segment_size": 4096}
    return {**times, **where, **lines, **sizes, **blocks, **given}


def region(start: int, end: int, name: str, number: int, **given: Any) -> Row:  # noqa: ANN401 (values of a table)
    """A call or a marked range of the first thread."""
    where = {"nid": 1, "pid": 70, "tid": 71}
    times = {"start": start, "end": end, "event_id": number}
    return {**times, **where, "name_id": string(name), **given}


def agent(number: int, kind: str, index: int, machine: int = 1) -> Row:
    """An agent whose row, and whose index on its machine, have these numbers."""
    return {
        "id": number,
        "nid": machine,
        "type": kind,
        "absolute_index": index,
        "name": "gfx942",
        "product_name": "AMD Instinct MI300X",
        "model_name": "",
        "extdata": json.dumps({"cu_count": 304}),
    }


def run(**tables: list[Row]) -> dict[str, list[Row]]:
    """The tables of one run: a process 4711 with a kernel, unless `tables` differ."""
    return {
        "metadata": [{"tag": "schema_version", "value": "3"}],
        "string": numbered(STRINGS),
        "info_process": [{"id": 70, "nid": 1, "pid": 4711}],
        "info_thread": [{"id": 71, "nid": 1, "pid": 70, "tid": 4712}],
        "info_agent": [agent(1, "CPU", 0), agent(2, "GPU", 4)],
        "info_kernel_symbol": [
            {
                "id": 5,
                "kernel_name": "_Z4gemm.kd",
                "display_name": "gemm()",
                "arch_vgpr_count": 128,
                "accum_vgpr_count": 8,
            }
        ],
        "event": [event(1, "KERNEL_DISPATCH", 9), event(2, "HIP_RUNTIME_API_EXT", 9)],
        "kernel_dispatch": [dispatch(2000, 2500, 1)],
        "region": [region(1000, 1100, "hipLaunchKernel", 2)],
        **tables,
    }


def trace_of(path: Path, *runs: dict[str, list[Row]]) -> Trace:
    """The trace of runs that were merged into one database."""
    tables: dict[str, list[Row]] = {}
    for suffix, each in zip((GUID, OTHER), runs, strict=False):
        tables |= rocpd_tables(suffix, each)
    views = ["CREATE VIEW kernels AS SELECT 1 AS corr_id"]
    return read(database_file(path / "a.db", tables, views))


def frame(schema: Schema, *rows: Row) -> pl.DataFrame:
    """Rows in `schema`; what they leave out is null."""
    whole = [{**dict.fromkeys(schema), **row} for row in rows]
    return pl.DataFrame(whole, schema=schema)


KERNEL: Final = {
    "device": 4,
    "context": 3,
    "stream": 1,
    "kind": "kernel",
    "name": "gemm()",
    "start_ns": 1000,
    "duration_ns": 500,
    "correlation": 9,
    "grid_x": 4,
    "grid_y": 2,
    "grid_z": 1,
    "block_x": 256,
    "block_y": 1,
    "block_z": 1,
    "registers": 136,
    "shared_bytes": 4096,
}
CALL: Final = {
    "thread": 4712,
    "name": "hipLaunchKernel",
    "correlation": 9,
    "start_ns": 0,
    "duration_ns": 100,
}


def test_a_run_is_read(tmp_path: Path) -> None:
    """Kernels have grids in blocks, the agent's index, and the stack id as link."""
    trace = trace_of(tmp_path, run())
    assert_frame_equal(trace.kernels, frame(TRACE_KERNELS, KERNEL))
    assert_frame_equal(trace.calls, frame(TRACE_CALLS, CALL))
    assert trace.ranges.is_empty()
    assert trace.source == TraceSource(
        path=str(tmp_path / "a.db"),
        format=Format.ROCPD,
        written_by="rocprofv3, rocpd schema 3",
        bytes=(tmp_path / "a.db").stat().st_size,
    )
    assert trace.devices == (
        TraceDevice(
            device=4,
            name="AMD Instinct MI300X",
            architecture="gfx942",
            processors=304,
        ),
    )
    assert trace.origin_ns is None
    assert trace.notes == ()


def test_markers_are_ranges_by_their_message(tmp_path: Path) -> None:
    """A range of roctx is called what the user wrote, not what was called for it."""
    trace = trace_of(
        tmp_path,
        run(
            event=[
                event(1, "KERNEL_DISPATCH", 9),
                event(2, "HIP_RUNTIME_API_EXT", 9),
                event(3, "MARKER_CORE_RANGE_API", 4, "layer 3"),
                event(4, "MARKER_CORE_RANGE_API", 5),
                {**event(5, "MARKER_CORE_RANGE_API", 6), "extdata": "{"},
            ],
            region=[
                region(1000, 1100, "hipLaunchKernel", 2),
                region(900, 1200, "roctxRangePush", 3),
                region(950, 1150, "roctxRangePush", 4),
                region(960, 1140, "roctxRangePush", 5),
            ],
        ),
    )
    where = {"kind": "annotation", "thread": 4712}
    assert_frame_equal(
        trace.ranges,
        frame(
            TRACE_RANGES,
            {**where, "name": "layer 3", "start_ns": 0, "end_ns": 300},
            {**where, "name": "roctxRangePush", "start_ns": 50, "end_ns": 250},
            {**where, "name": "roctxRangePush", "start_ns": 60, "end_ns": 240},
        ),
    )
    assert trace.calls["name"].to_list() == ["hipLaunchKernel"]


def test_calls_of_hsa_are_kept_where_they_launch(tmp_path: Path) -> None:
    """HSA's calls that no kernel is linked to are left out."""
    trace = trace_of(
        tmp_path,
        run(
            event=[
                event(1, "KERNEL_DISPATCH", 9),
                event(2, "HSA_CORE_API", 9),
                event(3, "HSA_CORE_API", 10),
            ],
            region=[
                region(1000, 1100, "hsa_queue_create", 2),
                region(1200, 1300, "hsa_signal_create", 3),
            ],
        ),
    )
    assert trace.calls["name"].to_list() == ["hsa_queue_create"]


def test_copies_are_on_the_gpu_that_they_write(tmp_path: Path) -> None:
    """A copy is placed by its target, or by its source where that is a CPU."""
    copy = {
        "nid": 1,
        "pid": 70,
        "tid": 71,
        "queue_id": 0,
        "stream_id": 2,
        "name_id": string("MEMORY_COPY_HOST_TO_DEVICE"),
    }
    trace = trace_of(
        tmp_path,
        run(
            info_agent=[agent(1, "CPU", 0), agent(2, "GPU", 4), agent(3, "GPU", 5)],
            event=[event(1, "KERNEL_DISPATCH", 9), event(6, "MEMORY_COPY", 12)],
            memory_copy=[
                {
                    "start": 100,
                    "end": 150,
                    "event_id": 6,
                    "dst_agent_id": 3,
                    "src_agent_id": 1,
                    **copy,
                },
                {
                    "start": 200,
                    "end": 260,
                    "event_id": 6,
                    "dst_agent_id": 1,
                    "src_agent_id": 3,
                    **copy,
                },
            ],
        ),
    )
    place = {"device": 5, "context": 0, "stream": 2, "kind": "copy", "correlation": 12}
    name = {"name": "MEMORY_COPY_HOST_TO_DEVICE"}
    assert_frame_equal(
        trace.kernels.filter(kind="copy"),
        frame(
            TRACE_KERNELS,
            {**place, **name, "start_ns": 0, "duration_ns": 50},
            {**place, **name, "start_ns": 100, "duration_ns": 60},
        ),
    )


def test_merged_runs_are_processes(tmp_path: Path) -> None:
    """Each run has its own strings, symbols and stack ids, and its process's number."""
    other = run(
        info_process=[{"id": 70, "nid": 1, "pid": 5000}],
        info_thread=[{"id": 71, "nid": 1, "pid": 70, "tid": 5001}],
        info_agent=[agent(2, "GPU", 6)],
        info_kernel_symbol=[{"id": 5, "kernel_name": "_Z4norm.kd", "display_name": ""}],
        kernel_dispatch=[dispatch(1500, 1600, 1)],
    )
    trace = trace_of(tmp_path, run(), other)
    columns = ("process", "device", "name", "start_ns", "correlation")
    assert trace.kernels.select(columns).rows() == [
        (5000, 6, "_Z4norm", 500, 9),
        (4711, 4, "gemm()", 1000, 9),
    ]
    assert trace.calls.select("process", "thread").rows() == [
        (4711, 4712),
        (5000, 5001),
    ]
    assert [each.device for each in trace.devices] == [4, 6]


def test_machines_that_number_alike_are_told_apart(tmp_path: Path) -> None:
    """The same process and GPU number on two machines are two processes and GPUs."""
    other = run(info_agent=[agent(2, "GPU", 4, machine=2)])
    trace = trace_of(tmp_path, run(), other)
    places = trace.kernels.select("process", "device").rows()
    assert sorted(places) == [(0, 0), (1, 1)]
    assert [each.device for each in trace.devices] == [0, 1]
    assert trace.notes == (
        TraceNote(
            kind="repaired", what="machines that use the same numbers for their GPUs"
        ),
    )


def test_graph_nodes_are_read(tmp_path: Path) -> None:
    """Schema 3.0.2 tells the graph and the node of kernels that a graph launched."""
    trace = trace_of(
        tmp_path,
        run(
            kernel_dispatch=[
                dispatch(2000, 2100, 1, graph_exec_id=11, graph_node_id=0),
                dispatch(2100, 2200, 1, graph_exec_id=11, graph_node_id=1),
                dispatch(2200, 2300, 1, graph_exec_id=0, graph_node_id=0),
            ]
        ),
    )
    assert trace.kernels.select("graph", "graph_node").rows() == [
        (11, 0),
        (11, 1),
        (None, None),
    ]


def test_kernels_that_graph_launches_lack_are_counted(tmp_path: Path) -> None:
    """A launch of 5 kernels of which 1 is there makes the file untrusted."""
    launches = [
        {"event_id": 3, "kernel_dispatch_count": 5},
        {"event_id": 4, "kernel_dispatch_count": 2},
    ]
    trace = trace_of(
        tmp_path,
        run(
            event=[
                event(1, "KERNEL_DISPATCH", 9),
                event(3, "HIP_RUNTIME_API_EXT", 9),
                event(4, "HIP_RUNTIME_API_EXT", 10),
            ],
            region=[region(1000, 1100, "hipGraphLaunch", 3)],
            graph_launch=launches,
        ),
    )
    assert trace.notes == (
        TraceNote(
            kind="untrusted",
            what="kernels of HIP graphs that the file lacks, as its graph launches "
            "tell",
            count=6,
            about="kernels missing",
        ),
    )


def test_schema_4_is_the_same_trace(tmp_path: Path) -> None:
    """Places kept in tracks, categories and times in tables of their own."""
    places = ("nid", "pid", "tid", "agent_id", "queue_id", "stream_id")
    kernel, call = dispatch(0, 1, 1), region(0, 1, "hipLaunchKernel", 2)
    named = {"id": 80, **{name: kernel[name] for name in places}, "name_id": None}

    def tracked(row: Row) -> Row:
        rest = {k: v for k, v in row.items() if k not in {*places, "start", "end"}}
        return {**rest, "track_id": 80}

    events = [
        {**event(1, "KERNEL_DISPATCH", 9), "category_id": 1},
        {**event(2, "HIP_RUNTIME_API_EXT", 9), "category_id": 2},
    ]
    times = [1000, 1100, 2000, 2500]
    trace = trace_of(
        tmp_path,
        run(
            track=[named],
            timestamp=[{"id": at, "value": time} for at, time in enumerate(times)],
            info_category=numbered(CATEGORIES, "name"),
            event=events,
            kernel_dispatch=[{**tracked(kernel), "start_id": 2, "end_id": 3}],
            region=[{**tracked(call), "start_id": 0, "end_id": 1}],
        ),
    )
    assert_frame_equal(trace.kernels, frame(TRACE_KERNELS, KERNEL))
    assert_frame_equal(trace.calls, frame(TRACE_CALLS, CALL))


def test_a_partial_database_is_read(tmp_path: Path) -> None:
    """Rows whose strings, agents or events were never written are still there."""
    tables = {"kernel_dispatch": [dispatch(2000, 2500, 1, agent_id=2)]}
    trace = trace_of(tmp_path, tables)
    columns = ("device", "name", "duration_ns", "correlation", "registers")
    assert trace.kernels.select(columns).rows() == [(2, "(no name)", 500, None, None)]
    assert trace.notes == (TraceNote(kind="repaired", what="kernels without a name"),)
    assert trace.source.written_by == "rocprofv3"


def test_too_many_runs_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs beyond the limit are dropped, and the log says how many."""
    monkeypatch.setattr(rocpd, "MOST_RUNS", 1)
    trace = trace_of(tmp_path, run(), run())
    assert trace.kernels.height == 1
    assert trace.notes == (TraceNote(kind="dropped", what="runs beyond the first 1"),)
