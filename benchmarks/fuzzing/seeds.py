"""Small whole traces of every format, from which damaged ones are made."""

import gzip
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.fuzzing.databases import nsys_database, rocpd_database
from benchmarks.fuzzing.packets import perfetto_packets
from layerscope.ingest.formats import Format

LARGEST_REAL_BYTES: Final = 100_000
"""Of the real traces that are damaged as well, where there are any."""

_KERNELS: Final = 24


@dataclass(frozen=True, slots=True)
class Seed:
    """One trace: a file, and those that are read with it."""

    format: str
    files: Mapping[str, bytes]
    """By name; the first is the one that readers are given."""


def seeds() -> list[Seed]:
    """Those that are made here, and as many real ones where these can be found."""
    made, real = made_seeds(), list(_real())
    return [*made * max(1, len(real) // len(made)), *real]


def made_seeds() -> list[Seed]:
    """One or more of each format."""
    return [
        Seed(Format.KINETO, {"trace.json": _kineto()}),
        Seed(Format.KINETO, {"trace.json": _kineto(indent=2)}),
        Seed(Format.KINETO, {"trace.json": json.dumps(_events()).encode()}),
        Seed(Format.KINETO, {"trace.json": _old_kineto()}),
        Seed(Format.PROTON, {"proton.chrome_trace": _proton()}),
        Seed(Format.NSYS, {"report.sqlite": nsys_database()}),
        Seed(Format.ROCPD, {"results.db": rocpd_database()}),
        Seed(Format.ROCPROF_CSV, _rocprof_csv()),
        Seed(Format.ROCPROF_JSON, {"results.json": _rocprof_json()}),
        Seed(Format.PERFETTO, {"results.pftrace": perfetto_packets()}),
    ]


def _real() -> Iterator[Seed]:
    """Unpacked, as damage to what they are packed in seldom leaves more than a few."""
    folder = os.environ.get("LAYERSCOPE_TRACES")
    for path in sorted(Path(folder).rglob("*")) if folder else ():
        if path.is_file() and path.stat().st_size <= LARGEST_REAL_BYTES:
            data = path.read_bytes()
            is_packed = data.startswith(b"\x1f\x8b")
            yield Seed(
                "real", {path.name: gzip.decompress(data) if is_packed else data}
            )


def _events() -> list[dict[str, Any]]:
    """A step of a graph's replay and eager kernels, with all that Kineto tells."""
    args = {"device": 0, "context": 1, "stream": 7, "grid": [4, 1, 1]}
    args |= {"block": [128, 1, 1], "registers per thread": 32, "shared memory": 0}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "args": {"name": "p"}},
        _span("user_annotation", "ProfilerStep#1", 9, 9, (0.0, 900.0), {}),
        _span("cuda_runtime", "cudaGraphLaunch", 9, 9, (2.0, 0.25), {"correlation": 1}),
        _span("python_function", "nn.Module: Layer_0", 9, 9, (1.0, 800.0), {}),
    ]
    for index in range(_KERNELS):
        correlation = 1 if index % 3 else index + 2
        graph = {"graph id": 5, "graph node id": index} if index % 3 else {}
        linked = {"correlation": correlation, "External id": index}
        own = {**args, **linked, **graph, "Collective name": "allreduce"}
        times = (20.125 + 10 * index, 8.001)
        if not graph:
            times = (2.5 + index, 1.25)
            events += [_span("cuda_runtime", "cudaLaunchKernel", 9, 9, times, linked)]
        events += [
            _span("kernel", f"void gemm<{index % 4}>(\u00b5*)", 0, 7, times, own),
            {"ph": "s", "cat": "ac2g", "id": correlation, "pid": 9, "tid": 9, "ts": 1},
        ]
    copy = {"device": 0, "stream": 20, "correlation": 99, "bytes": 64}
    span = _span("gpu_memcpy", "Memcpy HtoD", 0, 20, (30.0, 5.5), copy)
    return [*events, span, {"ph": "i", "s": "t", "name": "Record Window End"}]


def _span(
    category: str,
    name: str,
    process: int,
    thread: int,
    times_us: tuple[float, float],
    args: dict[str, Any],
) -> dict[str, Any]:
    start, duration = times_us
    where = {"ph": "X", "cat": category, "name": name, "pid": process, "tid": thread}
    return {**where, "ts": start, "dur": duration, "args": args}


def _kineto(indent: int | None = None) -> bytes:
    trace = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H200", "numSms": 132}],
        "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 2},
        "baseTimeNanoseconds": 1782967788000000000,
        "traceEvents": _events(),
        "traceName": "trace.json",
    }
    return json.dumps(trace, indent=indent).encode()


def _old_kineto() -> bytes:
    """As PyTorch wrote it in 2021."""
    args = {"device": 0, "stream": 7, "correlation": 3, "external id": 4}
    where = {"ph": "X", "pid": 0, "tid": "stream 7", "args": args}
    events = [
        {
            **where,
            "cat": "Kernel",
            "name": "gemm",
            "ts": 1600000000000000 + at,
            "dur": 2,
        }
        for at in range(0, 90, 3)
    ]
    return json.dumps({"schemaVersion": 1, "traceEvents": events}).encode()


def _proton() -> bytes:
    """One object a line and stream."""
    lines = []
    for stream in (7, 20):
        common = {"cat": "kernel", "ph": "X", "tid": stream}
        events: list[dict[str, Any]] = [
            {**common, "name": "gemm", "ts": at, "dur": 2.5, "args": {"call_stack": []}}
            for at in range(0, 50, 5)
        ]
        lines.append(json.dumps({"displayTimeUnit": "us", "traceEvents": events}))
    return "\n".join(lines).encode()


def _rocprof_csv() -> dict[str, bytes]:
    kernels = [
        f'"KERNEL_DISPATCH","Agent 4",1,2,834304,{at},10,"void add<a, ""b"">(float*)",'
        f"{at // 3},{1000 + 10 * at},{1008 + 10 * at},0,0,8,0,16,64,1,1,1024,1024,1"
        for at in range(_KERNELS)
    ]
    calls = [
        f'"HIP_RUNTIME_API_EXT","hipGraphLaunch",77,77,{at},{900 + at},{901 + at}'
        for at in range(_KERNELS)
    ]
    api = '"Domain","Function","Process_Id","Thread_Id","Correlation_Id",' + _TIMES
    return {
        "77_kernel_trace.csv": _table(
            '"Kind","Agent_Id","Queue_Id","Stream_Id","Thread_Id","Dispatch_Id",'
            '"Kernel_Id","Kernel_Name","Correlation_Id",'
            + _TIMES
            + ',"LDS_Block_Size",'
            '"Scratch_Size","VGPR_Count","Accum_VGPR_Count","SGPR_Count",'
            '"Workgroup_Size_X","Workgroup_Size_Y","Workgroup_Size_Z","Grid_Size_X",'
            '"Grid_Size_Y","Grid_Size_Z"',
            kernels,
        ),
        "77_hip_api_trace.csv": _table(api, calls),
        "77_marker_api_trace.csv": _table(
            api, ['"MARKER_CORE_API","step 1",77,77,1,900,1300']
        ),
        "77_memory_copy_trace.csv": _table(
            '"Kind","Direction","Stream_Id","Source_Agent_Id","Destination_Agent_Id",'
            '"Correlation_Id",' + _TIMES,
            ['"MEMORY_COPY","MEMORY_COPY_HOST_TO_DEVICE",0,"Agent 0","Agent 4",1,9,99'],
        ),
        "77_agent_info.csv": _table(
            '"Node_Id","Logical_Node_Id","Agent_Type","Name","Product_Name"',
            ['4,4,"GPU","gfx942","AMD Instinct MI300X"'],
        ),
    }


_TIMES: Final = '"Start_Timestamp","End_Timestamp"'


def _table(header: str, rows: list[str]) -> bytes:
    return "\n".join([header, *rows, ""]).encode()


def _rocprof_json() -> bytes:
    size = {"x": 64, "y": 1, "z": 1}
    launch = {
        "agent_id": {"handle": 5},
        "queue_id": {"handle": 1},
        "kernel_id": 1,
        "workgroup_size": size,
        "grid_size": {"x": 1024, "y": 1, "z": 1},
    }
    dispatches = [
        {
            "size": 200,
            "kind": 11,
            "operation": 2,
            "thread_id": 77,
            "correlation_id": {"internal": at, "external": 0},
            "start_timestamp": 1000 + 10 * at,
            "end_timestamp": 1008 + 10 * at,
            "dispatch_info": launch,
            "stream_id": {"handle": 2},
        }
        for at in range(_KERNELS)
    ]
    agent = {"id": {"handle": 5}, "type": 2, "name": "gfx942", "cu_count": 304}
    process = {
        "metadata": {"pid": 77, "init_time": 1, "fini_time": 9},
        "agents": [agent],
        "strings": {"buffer_records": [{"kind": "HIP_RUNTIME_API", "operations": []}]},
        "kernel_symbols": [{"kernel_id": 1, "formatted_kernel_name": "gemm(float*)"}],
        "buffer_records": {"kernel_dispatch": dispatches, "hip_api": []},
    }
    return json.dumps({"rocprofiler-sdk-tool": [process]}).encode()
