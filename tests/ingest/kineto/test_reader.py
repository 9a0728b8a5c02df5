import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.errors import InputError
from layerscope.schema import TRACE_CALLS, TRACE_KERNELS, TRACE_RANGES
from layerscope.trace import Trace, TraceDevice, TraceSource
from tests.ingest.kineto.made import document, kernel, launch, notes, read, rows, span

WITHOUT_LAUNCH = "kernels whose launch is not in the file (cut window, or lost)"
SIZES: dict[str, Any] = {
    "registers per thread": 32,
    "shared memory": 1024,
    "grid": [4, 2, 1],
    "block": [128, 1, 1],
}
PLACE = {"device": 0, "context": 1, "stream": 7}


EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "args": {"name": "p"}},
    span("user_annotation", "ProfilerStep#3", 100, 50),
    span("cpu_op", "aten::mm", 101, 9),
    launch(5, 102.25),
    {"ph": "s", "cat": "ac2g", "id": 5, "pid": 9, "tid": 11, "ts": 102.25},
    kernel("gemm", 110.125, 8.001, correlation=5, **PLACE, **SIZES),
    {
        **span("gpu_memcpy", "Memcpy DtoH", 120, 2, correlation=6, **PLACE),
        "pid": 0,
        "tid": 7,
    },
    {**span("gpu_memset", "Memset", 123, 1, correlation=7, device=0, stream=9)},
]
HEADER = {
    "schemaVersion": 1,
    "deviceProperties": [
        {
            "id": 0,
            "name": "NVIDIA H100",
            "computeMajor": 9,
            "computeMinor": 0,
            "numSms": 132,
            "totalGlobalMem": 85_017_755_648,
        }
    ],
    "distributedInfo": {"rank": 3, "world_size": 8},
    "baseTimeNanoseconds": 1_751_410_836_000_000_000,
    "cuda_runtime_version": 12_090,
}


def only(trace: Trace, column: str) -> list[object]:
    """One column of its kernels."""
    return trace.kernels[column].to_list()


def test_all_that_a_trace_tells_is_read(tmp_path: Path) -> None:
    """Kernels, copies, fills, their calls, and ranges."""
    trace = read(tmp_path, document(EVENTS))
    common = {"device": 0, "context": 1, "stream": 7}
    sizes = {"grid_x": 4, "grid_y": 2, "grid_z": 1, "block_x": 128, "block_y": 1}
    assert_frame_equal(
        trace.kernels,
        rows(
            TRACE_KERNELS,
            {
                **common,
                **sizes,
                "block_z": 1,
                "kind": "kernel",
                "name": "gemm",
                "start_ns": 10_125,
                "duration_ns": 8_001,
                "correlation": 5,
                "registers": 32,
                "shared_bytes": 1024,
            },
            {
                **common,
                "kind": "copy",
                "name": "Memcpy DtoH",
                "start_ns": 20_000,
                "duration_ns": 2_000,
                "correlation": 6,
            },
            {
                "device": 0,
                "stream": 9,
                "kind": "fill",
                "name": "Memset",
                "start_ns": 23_000,
                "duration_ns": 1_000,
                "correlation": 7,
            },
        ),
    )
    call = {"thread": 11, "name": "cudaLaunchKernel", "correlation": 5}
    assert_frame_equal(
        trace.calls,
        rows(TRACE_CALLS, {**call, "start_ns": 2_250, "duration_ns": 500}),
    )
    step = {"kind": "step", "name": "ProfilerStep#3", "thread": 11}
    assert_frame_equal(
        trace.ranges, rows(TRACE_RANGES, {**step, "start_ns": 0, "end_ns": 50_000})
    )


def test_what_a_trace_says_of_itself_is_read(tmp_path: Path) -> None:
    """Devices, ranks, the clock, and what wrote it."""
    data = document(EVENTS, **HEADER)
    trace = read(tmp_path, data)
    assert trace.devices == (
        TraceDevice(
            device=0,
            name="NVIDIA H100",
            architecture="sm_90",
            processors=132,
            memory_bytes=85_017_755_648,
        ),
    )
    assert (trace.rank, trace.ranks) == (3, 8)
    assert trace.origin_ns == 1_751_410_836_000_100_000
    assert trace.notes == ()
    assert trace.source == TraceSource(
        path=str(tmp_path / "trace.json"),
        format="Kineto JSON",
        written_by="PyTorch profiler, CUDA 12.9",
        bytes=len(data),
    )


def test_ranges_of_the_host_and_of_devices_are_told_apart(tmp_path: Path) -> None:
    """Of Python's stack, modules are ranges; what a program named is an annotation."""
    on_device = {**span("gpu_user_annotation", "moe", 3, 2), "pid": 1, "tid": 20}
    events = [
        span("python_function", "nn.Module: Layer_0", 1, 9),
        span("python_function", "layer.py(3): forward", 1, 9),
        span("user_annotation", "step[DECODE bs=32]", 0, 20),
        span("user_annotation", "execute_context_1(888)_generation_0(0)", 0, 19),
        span("user_annotation", "moe", 2, 1),
        on_device,
    ]
    trace = read(tmp_path, document(events))
    host = {"thread": 11}
    assert_frame_equal(
        trace.ranges,
        rows(
            TRACE_RANGES,
            *(
                {"kind": kind, "name": name, "start_ns": start, "end_ns": end, **place}
                for kind, name, start, end, place in (
                    ("step", "step[DECODE bs=32]", 0, 20_000, host),
                    (
                        "step",
                        "execute_context_1(888)_generation_0(0)",
                        0,
                        19_000,
                        host,
                    ),
                    ("module", "nn.Module: Layer_0", 1_000, 10_000, host),
                    ("annotation", "moe", 2_000, 3_000, host),
                    ("annotation", "moe", 3_000, 5_000, {"device": 1, "stream": 20}),
                )
            ),
        ),
    )


def test_the_schema_of_2021_is_read(tmp_path: Path) -> None:
    """Other categories, threads and streams as texts, and steps among operators."""
    call = {**span("Runtime", "cudaLaunchKernel", 2, 1, correlation=4), "tid": "77"}
    work = {**span("Kernel", "gemm", 5, 3, correlation=4), "pid": 0, "tid": "stream 7"}
    events = [
        span("Operator", "ProfilerStep#2", 1, 9),
        span("Operator", "aten::mm", 2, 1),
        call,
        work,
    ]
    properties = [{"id": 0, "name": "Tesla V100", "major": 7, "minor": 0}]
    trace = read(
        tmp_path, document(events, schemaVersion=1, computeProperties=properties)
    )
    assert trace.kernels.select("device", "stream", "correlation").rows() == [(0, 7, 4)]
    assert trace.calls["thread"].to_list() == [77]
    assert trace.ranges.select("kind", "name").rows() == [("step", "ProfilerStep#2")]
    assert trace.devices[0].architecture == "sm_70"
    assert trace.notes == ()


def test_a_bare_list_of_events_is_read(tmp_path: Path) -> None:
    """As Chrome's format allows."""
    data = json.dumps([launch(1, 0), kernel("gemm", 1, 2, correlation=1)]).encode()
    trace = read(tmp_path, data)
    assert only(trace, "name") == ["gemm"]
    assert trace.notes == ()


def test_a_trace_of_proton_is_read(tmp_path: Path) -> None:
    """One object a stream, one a line; no processes, no launches."""
    lines = [
        json.dumps(
            {
                "displayTimeUnit": "us",
                "traceEvents": [
                    {
                        "name": f"softmax_{stream}",
                        "cat": "kernel",
                        "ph": "X",
                        "ts": stream + 0.001 * index,
                        "dur": 0.0005,
                        "tid": stream,
                        "args": {"call_stack": ["ROOT", "layer"]},
                    }
                    for index in range(2)
                ],
            }
        )
        for stream in (3, 1)
    ]
    trace = read(tmp_path, "\n".join(lines).encode())
    assert trace.kernels.select("name", "stream", "start_ns").rows() == [
        ("softmax_1", 1, 0),
        ("softmax_1", 1, 1),
        ("softmax_3", 3, 2_000),
        ("softmax_3", 3, 2_001),
    ]
    assert trace.source.format == "Proton Chrome trace"
    assert notes(trace) == {WITHOUT_LAUNCH: 4}
    assert [note.about for note in trace.notes] == ["launches missing"]


def test_what_a_graph_launched_is_told(tmp_path: Path) -> None:
    """Nodes are given, where a file has them; 0 says that there was no graph."""
    events = [
        launch(1, 0, "cudaGraphLaunch"),
        *(
            kernel("node", 2 + i, 1, correlation=1, **graph)
            for i, graph in enumerate(
                [
                    {"graph id": 5, "graph node id": 11},
                    {"graph id": 0, "graph node id": 0},
                    {},
                ]
            )
        ),
    ]
    trace = read(tmp_path, document(events))
    assert trace.kernels.select("correlation", "graph", "graph_node").rows() == [
        (1, 5, 11),
        (1, None, None),
        (1, None, None),
    ]
    assert trace.calls["name"].to_list() == ["cudaGraphLaunch"]
    assert trace.notes == ()


def test_graph_launches_without_kernels_are_kept(tmp_path: Path) -> None:
    """They tell that kernels were lost; other calls without work tell nothing."""
    events = [
        launch(0, 1),
        launch(1, 2, "cudaGraphLaunch"),
        launch(2, 3, "hipGraphLaunch"),
        launch(3, 4),
        kernel("a", 5, 1, correlation=0),
    ]
    found = read(tmp_path, document(events)).calls
    assert found["name"].to_list() == [
        *("cudaLaunchKernel", "cudaGraphLaunch", "hipGraphLaunch"),
    ]


def test_grids_count_blocks(tmp_path: Path) -> None:
    """One of HIP's calls takes work-items; without the call it cannot be told."""
    shape = {"grid": [1000, 8, 1], "block": [256, 2, 1]}
    events = [
        launch(1, 0, "hipExtModuleLaunchKernel"),
        launch(2, 1, "hipLaunchKernel"),
        *(kernel("k", 9 + i, 1, correlation=i, **shape) for i in (1, 2, 3)),
        kernel("in a graph", 15, 1, correlation=1),
    ]
    trace = read(tmp_path, document(events))
    assert trace.kernels.select("grid_x", "grid_y", "grid_z").rows() == [
        (4, 4, 1),
        (1000, 8, 1),
        (None, None, None),
        (None, None, None),
    ]
    assert notes(trace) == {
        WITHOUT_LAUNCH: 1,
        "grids that count blocks or work-items, which cannot be told; left out": 1,
    }


def test_collectives_are_told(tmp_path: Path) -> None:
    """By their operation and group, as far as the file tells them."""
    told = {"Collective name": "allreduce", "Process Group Name": "tp:0"}
    events = [kernel("nccl", 1, 2, **told), kernel("gemm", 3, 1)]
    trace = read(tmp_path, document(events))
    assert trace.kernels.select("collective", "group").rows() == [
        ("allreduce", "tp:0"),
        (None, None),
    ]


def test_collectives_without_parameters_are_told_by_ranges(tmp_path: Path) -> None:
    """Only kernels of NCCL, and only those that were launched in such a range."""
    annotation = span("user_annotation", "nccl:all_to_all", 10.0, 5.0)
    events = [
        annotation,
        *(launch(1, 11.0), launch(2, 12.0), launch(3, 15.5)),
        kernel("ncclKernel_SendRecv", 20.0, 4.0, correlation=1),
        kernel("copy_kernel", 24.0, 1.0, correlation=2),
        kernel("ncclKernel_SendRecv", 25.0, 4.0, correlation=3),
    ]
    trace = read(tmp_path, document(events))
    assert trace.kernels["collective"].to_list() == ["all_to_all", None, None]


def test_calls_that_launched_nothing_are_left_out(tmp_path: Path) -> None:
    """Only what device work is linked to is a call of the trace."""
    events = [launch(1, 0), launch(2, 1), kernel("gemm", 2, 1, correlation=2)]
    trace = read(tmp_path, document(events))
    assert trace.calls["correlation"].to_list() == [2]


def test_one_call_has_a_correlation(tmp_path: Path) -> None:
    """Of several, the first that launches; what is there twice is dropped."""
    events = [
        launch(1, 0, "cudaStreamSynchronize"),
        launch(1, 1, "cudaLaunchKernel"),
        launch(1, 1, "cudaLaunchKernel"),
        kernel("gemm", 2, 1, correlation=1),
    ]
    trace = read(tmp_path, document(events))
    assert trace.calls["name"].to_list() == ["cudaLaunchKernel"]
    assert notes(trace) == {
        "calls that share the number by which work is linked with another": 1,
        "calls that are there twice": 1,
    }


def test_times_that_were_absolute_stay_so(tmp_path: Path) -> None:
    """Before 2024, times are Unix times, of which each digit counts."""
    data = document([kernel("gemm", 0, 0)]).replace(
        b'"ts": 0, "dur": 0', b'"ts": 1711964646000123.457, "dur": 8.001'
    )
    trace = read(tmp_path, data)
    assert trace.origin_ns == 1_711_964_646_000_123_457
    assert only(trace, "duration_ns") == [8_001]


def test_times_of_no_known_clock_have_no_origin(tmp_path: Path) -> None:
    """Small numbers without a base are no Unix times."""
    assert read(tmp_path, document([kernel("gemm", 5, 1)])).origin_ns is None


def test_starts_before_the_clock_are_dropped(tmp_path: Path) -> None:
    """Kineto writes them as 0, which may be months before all else."""
    events = [
        span("user_annotation", "early", 0, 5),
        span("user_annotation", "layer", 7e12, 5),
        kernel("gemm", 7e12 + 1, 1),
    ]
    trace = read(tmp_path, document(events))
    assert trace.ranges["name"].to_list() == ["layer"]
    assert only(trace, "start_ns") == [1_000]
    what = "calls and ranges that begin before the clock, at times unknown"
    assert notes(trace)[what] == 1


def test_devices_are_numbered_as_kernels_number_them(tmp_path: Path) -> None:
    """On ROCm a kernel may run on a device that the list lacks: all are alike."""
    properties = [
        {
            "id": each,
            "name": "AMD Instinct MI300X",
            "computeMajor": 9,
            "computeMinor": 4,
        }
        for each in (0, 1)
    ]
    events = [{**kernel("gemm", 1, 1, stream=0, device=9), "pid": 9}]
    trace = read(tmp_path, document(events, deviceProperties=properties))
    assert trace.devices == (
        TraceDevice(device=9, name="AMD Instinct MI300X", architecture="gfx942"),
    )


def test_a_trace_of_the_host_only_says_so(tmp_path: Path) -> None:
    """There is nothing to analyse, but a folder of ranks may hold such files."""
    trace = read(tmp_path, document([span("cpu_op", "aten::mm", 1, 2)]))
    assert trace.kernels.is_empty()
    assert [note.kind for note in trace.notes] == ["untrusted"]


def test_other_accelerators_are_named(tmp_path: Path) -> None:
    """Their events are others, which are not read."""
    events = [span("mtia_ccp_events", "fast_cat", 1, 2)]
    with pytest.raises(InputError, match="is a trace of an MTIA accelerator"):
        read(tmp_path, document(events))


def test_times_within_kernels_are_named(tmp_path: Path) -> None:
    """Proton's instrumentation has cycles, not times of kernels."""
    events = [{**span("softmax", "load", 1, 2), "pid": "softmax Core0 CTA1"}]
    with pytest.raises(InputError, match="what happens within kernels"):
        read(tmp_path, document(events, displayTimeUnit="ns"))


def test_json_without_events_is_refused(tmp_path: Path) -> None:
    """It says what is missing."""
    with pytest.raises(InputError, match=r"holds no list of events \(traceEvents\)"):
        read(tmp_path, b'{"schemaVersion": 1, "deviceProperties": []}')


def test_events_without_a_duration_are_counted(tmp_path: Path) -> None:
    """A kernel that begins and ends by two events is not read."""
    events = [{**kernel("gemm", 1, 0), "ph": "B"}, kernel("gemm", 2, 1)]
    trace = read(tmp_path, document(events))
    assert only(trace, "start_ns") == [0]
    assert notes(trace)["events of a GPU without a duration of their own"] == 1


def test_kernels_are_sorted(tmp_path: Path) -> None:
    """By start, then end, then their order in the file, whatever kind they are."""
    place = {"device": 0, "stream": 7}
    events = [
        kernel("late", 5, 1),
        kernel("long", 1, 3),
        span("gpu_memcpy", "copy", 1, 2, **place),
        kernel("same", 1, 2),
    ]
    trace = read(tmp_path, document(events))
    assert only(trace, "name") == ["copy", "same", "long", "late"]
    assert trace.kernels.schema == pl.Schema(TRACE_KERNELS)
