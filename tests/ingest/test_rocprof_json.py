import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.errors import InputError
from layerscope.schema import TRACE_CALLS, TRACE_KERNELS, TRACE_RANGES
from layerscope.trace import TraceDevice
from tests.ingest.reading import counts, frame, read
from tests.ingest.real_traces import real_trace

CPU, GPU, OTHER_GPU = 100, 200, 300  # handles of agents
KINDS = [
    {"kind": "NONE", "operations": []},
    {"kind": "HIP_RUNTIME_API_EXT", "operations": ["hipFree", "hipGraphLaunch"]},
    {"kind": "HSA_CORE_API", "operations": ["hsa_init"]},
    {"kind": "MARKER_CORE_RANGE_API", "operations": ["roctxThreadRangeA"]},
    {"kind": "MEMORY_COPY", "operations": ["NONE", "MEMORY_COPY_DEVICE_TO_HOST"]},
]


def record(
    start: int, end: int, correlation: int, kind: int = 0, operation: int = 0
) -> dict[str, Any]:
    """What all records have."""
    return {
        "size": 1,
        "kind": kind,
        "operation": operation,
        "thread_id": 71,
        "correlation_id": {"internal": correlation, "external": 0},
        "start_timestamp": start,
        "end_timestamp": end,
    }


def dispatch(
    start: int, end: int, *, kernel: int = 1, stream: int | None = 3
) -> dict[str, Any]:
    """A kernel of 100 × 4 work-items in blocks of 64 × 2."""
    info = {
        "size": 72,
        "agent_id": {"handle": GPU},
        "queue_id": {"handle": 9},
        "kernel_id": kernel,
        "dispatch_id": 1,
        "group_segment_size": 512,
        "workgroup_size": {"x": 64, "y": 2, "z": 1},
        "grid_size": {"x": 100, "y": 4, "z": 1},
    }
    streams = {} if stream is None else {"stream_id": {"handle": stream}}
    return {**record(start, end, 8), "dispatch_info": info, **streams}


def agent(handle: int, kind: int, place: int) -> dict[str, Any]:
    """A processor, the first of its kind being a CPU."""
    return {
        "id": {"handle": handle},
        "type": kind,
        "logical_node_id": place,
        "name": "gfx950",
        "product_name": "AMD Instinct MI350X",
        "cu_count": 256,
        "mem_banks": [
            {"heap_type": 1, "size_in_bytes": 300},
            {"heap_type": 0, "size_in_bytes": 7},
        ],
    }


def symbol(kernel: int, name: str, formatted: str = "") -> dict[str, Any]:
    """A kernel that was loaded."""
    return {
        "kernel_id": kernel,
        "kernel_name": f"_Z{kernel}.kd",
        "formatted_kernel_name": formatted,
        "demangled_kernel_name": name,
        "arch_vgpr_count": 12,
        "accum_vgpr_count": 4,
    }


def process(**records: list[dict[str, Any]]) -> dict[str, Any]:
    """What rocprofv3 writes of one process, in its order."""
    return {
        "metadata": {"node": {"id": 0}, "pid": 70, "config": {"output": '"agents": ['}},
        "agents": [agent(CPU, 1, 0), agent(GPU, 2, 4), agent(OTHER_GPU, 2, 5)],
        "counters": [],
        "strings": {
            "callback_records": [{"kind": "NONE", "operations": ["wrong"]}],
            "buffer_records": KINDS,
            "marker_api": [{"key": 5, "value": "step 1"}],
        },
        "code_objects": [{"uri": "file://x"}],
        "kernel_symbols": [symbol(0, "0"), symbol(1, "mul(float*) [clone .kd]")],
        "callback_records": {"counter_collection": []},
        "buffer_records": records,
    }


def written(path: Path, *processes: dict[str, Any], indent: int | None = None) -> Path:
    """A file of `processes`."""
    path.write_text(json.dumps({"rocprofiler-sdk-tool": processes}, indent=indent))
    return path


WHOLE = {
    "kernel_dispatch": [dispatch(2000, 2300), dispatch(1500, 1900)],
    "hip_api": [record(1000, 1200, 8, 1, 1), record(900, 950, 1, 1, 0)],
    "hsa_api": [record(910, 920, 2, 2, 0), record(1010, 1020, 8, 2, 0)],
    "marker_api": [record(800, 2600, 5, 3, 0), record(810, 810, 5, 3, 0)],
    "memory_copy": [
        {
            **record(2400, 2500, 9, 4, 1),
            "src_agent_id": {"handle": GPU},
            "dst_agent_id": {"handle": CPU},
            "stream_id": {"handle": 0},
        }
    ],
}
KERNEL = {
    "device": 4,
    "context": 9,
    "stream": 3,
    "kind": "kernel",
    "name": "mul(float*)",
    "correlation": 8,
    "grid_x": 2,
    "grid_y": 2,
    "grid_z": 1,
    "block_x": 64,
    "block_y": 2,
    "block_z": 1,
    "registers": 16,
    "shared_bytes": 512,
}


@pytest.mark.parametrize("indent", [None, 1])
def test_all_that_a_process_did_is_read(tmp_path: Path, indent: int | None) -> None:
    """Names and devices are looked up, and records sorted, however it is laid out."""
    trace = read(written(tmp_path / "a.json", process(**WHOLE), indent=indent))
    assert_frame_equal(
        trace.kernels,
        frame(
            TRACE_KERNELS,
            {**KERNEL, "start_ns": 700, "duration_ns": 400},
            {**KERNEL, "start_ns": 1200, "duration_ns": 300},
            {
                "device": 4,
                "stream": 0,
                "kind": "copy",
                "name": "MEMORY_COPY_DEVICE_TO_HOST",
                "start_ns": 1600,
                "duration_ns": 100,
                "correlation": 9,
            },
        ),
    )
    call = {"thread": 71}
    launch = {"name": "hipGraphLaunch", "start_ns": 200, "duration_ns": 200}
    free = {"name": "hipFree", "start_ns": 100, "duration_ns": 50}
    hsa = {"name": "hsa_init", "start_ns": 210, "duration_ns": 10}
    assert_frame_equal(
        trace.calls,
        frame(
            TRACE_CALLS,
            {**call, **free, "correlation": 1},
            {**call, **launch, "correlation": 8},
            {**call, **hsa, "correlation": 8},
        ),
    )
    marker = {"kind": "annotation", "name": "step 1", "start_ns": 0, "end_ns": 1800}
    assert_frame_equal(trace.ranges, frame(TRACE_RANGES, {**call, **marker}))
    assert trace.devices == tuple(
        TraceDevice(
            device=place,
            name="AMD Instinct MI350X",
            architecture="gfx950",
            processors=256,
            memory_bytes=300,
        )
        for place in (4, 5)
    )
    assert not trace.notes


def test_keys_may_come_in_any_order(tmp_path: Path) -> None:
    """Files that went through other programs have their keys sorted."""
    plain = read(written(tmp_path / "a.json", process(**WHOLE)))
    path = tmp_path / "b.json"
    text = {"rocprofiler-sdk-tool": [process(**WHOLE)]}
    path.write_text(json.dumps(text, sort_keys=True))
    assert_frame_equal(read(path).kernels, plain.kernels)
    assert_frame_equal(read(path).calls, plain.calls)


def test_processes_are_told_apart(tmp_path: Path) -> None:
    """Each has its own correlations and names."""
    first = process(kernel_dispatch=[dispatch(100, 200)], hip_api=WHOLE["hip_api"])
    second = {
        **process(kernel_dispatch=[dispatch(150, 250)]),
        "metadata": {"pid": 71},
        "kernel_symbols": [symbol(1, "add(float*)")],
    }
    trace = read(written(tmp_path / "a.json", first, second))
    assert trace.kernels.select("process", "name").rows() == [
        (70, "mul(float*)"),
        (71, "add(float*)"),
    ]
    assert trace.calls["process"].to_list() == [70, 70]
    assert len(trace.devices) == 2


def test_files_without_streams_have_those_of_queues(tmp_path: Path) -> None:
    """Streams were added later."""
    records = [dispatch(100, 200, stream=None)]
    trace = read(written(tmp_path / "a.json", process(kernel_dispatch=records)))
    assert trace.kernels.select("context", "stream").rows() == [(9, 9)]


def test_a_kernel_without_a_symbol_has_its_number(tmp_path: Path) -> None:
    """It is still told apart from others."""
    records = [dispatch(100, 200, kernel=77)]
    trace = read(written(tmp_path / "a.json", process(kernel_dispatch=records)))
    assert trace.kernels["name"].to_list() == ["(kernel 77)"]


def test_a_file_that_was_cut_gives_what_is_whole(tmp_path: Path) -> None:
    """The kernels before the cut are read, and the cut is counted."""
    path = written(tmp_path / "a.json", process(**WHOLE))
    text = path.read_text()
    path.write_text(text[: text.index('"start_timestamp": 1500')])
    trace = read(path)
    assert trace.kernels.select("name", "duration_ns").rows() == [("mul(float*)", 300)]
    what = "lists of records without an end: the file was cut"
    assert counts(trace.notes) == {what: 1}


def test_damaged_records_cost_themselves(tmp_path: Path) -> None:
    """Texts that are no JSON are mended; records that are none are dropped."""
    path = written(tmp_path / "a.json", process(**WHOLE))
    text = path.read_text().replace("mul(float*)", "mul(\\q\x01float*)")
    text = text.replace('"start_timestamp": 1500', '"start_timestamp": [1500]')
    path.write_bytes(text.encode().replace(b"step 1", b"step \xff"))
    trace = read(path)
    kernels = trace.kernels.filter(kind="kernel")
    assert kernels["name"].to_list() == ["mul(\\q float*)"]
    assert trace.ranges["name"].to_list() == ["step \ufffd"]
    assert counts(trace.notes) == {
        "records that are no JSON, or lack their usual form": 1,
        "records with characters or escapes that JSON lacks": 2,
    }


def test_numbers_beyond_63_bits_cost_no_record(tmp_path: Path) -> None:
    """A handle may be any 64 bits; a time may not."""
    odd = dispatch(100, 200, stream=2**64 - 1)
    late = dispatch(2**63, 2**63 + 5)
    trace = read(written(tmp_path / "a.json", process(kernel_dispatch=[odd, late])))
    assert trace.kernels.select("stream", "duration_ns").rows() == [(None, 100)]
    assert counts(trace.notes) == {"kernels without times": 1}


def test_other_json_is_refused(tmp_path: Path) -> None:
    """One line says that nothing was found."""
    path = tmp_path / "a.json"
    path.write_text('{"pid": 1, "kernels": [{}]}')
    with pytest.raises(InputError, match="holds no records of rocprofv3"):
        read(path)


def test_a_real_training_has_its_figures() -> None:
    """FSDP on an MI350X: 43,915 kernels on five queues, with their overlaps."""
    trace = read(real_trace("TraceLens/908_results.json.gz"))
    kernels = trace.kernels
    assert (kernels.height, kernels["duration_ns"].sum()) == (43_915, 4_441_741_378)
    ends = kernels["start_ns"] + kernels["duration_ns"]
    assert ends.max() == 15_122_023_494
    streams = kernels.group_by("stream").len().sort("len", descending=True)
    assert streams.rows()[:4] == [(567, 37300), (5, 2016), (565, 1309), (566, 1018)]
    assert kernels["context"].n_unique() == 5
    assert kernels["correlation"].n_unique() == 43_915
    line = ("context", "stream")
    following = pl.col("start_ns").shift(-1).over(line)
    overlap = pl.col("start_ns") + pl.col("duration_ns") - following
    overlaps = kernels.select(overlap=overlap).filter(pl.col("overlap") > 0)
    assert (overlaps.height, overlaps["overlap"].max()) == (1275, 568)
    assert len(trace.devices) == 8
    assert not trace.notes
