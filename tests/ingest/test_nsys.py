from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.analyze.intervals import sweep
from layerscope.errors import InputError
from layerscope.ingest.formats import Format
from layerscope.ingest.read import read_trace
from layerscope.schema import TRACE_CALLS, TRACE_KERNELS, TRACE_RANGES, Schema
from layerscope.trace import Trace, TraceLog, TraceNote, TraceSource
from tests.ingest.databases import (
    NEWEST,
    NSYS_VERSIONS,
    Row,
    database_file,
    nsys_file,
    read,
)
from tests.ingest.packed import gzipped, written
from tests.ingest.real_traces import real_trace

KERNELS: Final = "CUPTI_ACTIVITY_KIND_KERNEL"
COPIES: Final = "CUPTI_ACTIVITY_KIND_MEMCPY"
FILLS: Final = "CUPTI_ACTIVITY_KIND_MEMSET"
CALLS: Final = "CUPTI_ACTIVITY_KIND_RUNTIME"
RANGES: Final = "NVTX_EVENTS"


def pid(process: int) -> int:
    """The number that stands for a process."""
    return (1 << 48) + (process << 24)


def kernel(start: int, end: int, correlation: int = 1, **given: Any) -> Row:  # noqa: ANN401 (values of a table)
    """A kernel of process 9 on device 0, context 1, stream 7."""
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": pid(9)}
    shape = {"gridX": 132, "gridY": 2, "gridZ": 1, "blockX": 256}
    needs = {"registersPerThread": 40, "staticSharedMemory": 16}
    return {
        "start": start,
        "end": end,
        "correlationId": correlation,
        **place,
        **shape,
        **needs,
        "blockY": 1,
        "blockZ": 1,
        "dynamicSharedMemory": 1024,
        "demangledName": "void gemm<float>(float*)",
        "shortName": "gemm",
        **given,
    }


def call(start: int, end: int, correlation: int, name: str, process: int = 9) -> Row:
    """A call of a process's first thread."""
    return {
        "start": start,
        "end": end,
        "correlationId": correlation,
        "nameId": name,
        "globalTid": pid(process) + process,
    }


def span(start: int, end: int | None, event: int = 59, **given: Any) -> Row:  # noqa: ANN401 (values of a table)
    """An NVTX event of process 9."""
    return {
        "start": start,
        "end": end,
        "eventType": event,
        "globalTid": pid(9) + 10,
        **given,
    }


def frame(schema: Schema, *rows: Row) -> pl.DataFrame:
    """Rows in `schema`; what they leave out is null."""
    whole = [{**dict.fromkeys(schema), **row} for row in rows]
    return pl.DataFrame(whole, schema=schema)


def small_export(path: Path, schema: str) -> Path:
    """A copy, a kernel and a fill, with their calls, two others and a range."""
    device = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": pid(9)}
    return nsys_file(
        path,
        {
            KERNELS: [kernel(1100, 1400, 3)],
            COPIES: [
                {
                    "start": 1050,
                    "end": 1090,
                    "correlationId": 2,
                    "copyKind": 1,
                    **device,
                }
            ],
            FILLS: [{"start": 1500, "end": 1510, "correlationId": 4, **device}],
            CALLS: [
                call(1000, 1020, 2, "cudaMemcpyAsync_v3020"),
                call(1020, 1025, 3, "cudaLaunchKernelExC_v11060"),
                call(1030, 1035, 4, "cudaMemsetAsync_ptsz_v7000"),
                call(1040, 1045, 5, "cudaStreamIsCapturing_v10000"),
                call(1050, 1055, 6, "cuLaunchKernelEx"),
            ],
            RANGES: [span(1010, 1026, text="layer 3")],
            "TARGET_INFO_SESSION_START_TIME": [{"utcEpochNs": 1_700_000_000 * 10**9}],
        },
        schema,
    )


PLACE: Final[Row] = {"device": 0, "context": 1, "stream": 7}
SMALL_KERNELS: Final[tuple[Row, ...]] = (
    {
        **PLACE,
        "kind": "copy",
        "name": "Memcpy HtoD",
        "correlation": 2,
        "start_ns": 50,
        "duration_ns": 40,
    },
    {
        **PLACE,
        "kind": "kernel",
        "name": "void gemm<float>(float*)",
        "correlation": 3,
        "start_ns": 100,
        "duration_ns": 300,
        "grid_x": 132,
        "grid_y": 2,
        "grid_z": 1,
        "block_x": 256,
        "block_y": 1,
        "block_z": 1,
        "registers": 40,
        "shared_bytes": 1040,
    },
    {
        **PLACE,
        "kind": "fill",
        "name": "Memset",
        "correlation": 4,
        "start_ns": 500,
        "duration_ns": 10,
    },
)
SMALL_CALLS: Final = (  # start and duration in ns, correlation, name
    (0, 20, 2, "cudaMemcpyAsync"),
    (20, 5, 3, "cudaLaunchKernelExC"),
    (30, 5, 4, "cudaMemsetAsync"),
    (50, 5, 6, "cuLaunchKernelEx"),
)
SMALL_RANGE: Final[Row] = {
    "kind": "annotation",
    "name": "layer 3",
    "thread": 10,
    "start_ns": 10,
    "end_ns": 26,
}


@pytest.mark.parametrize(("product", "schema"), NSYS_VERSIONS)
def test_every_schema_gives_the_same_trace(
    tmp_path: Path, product: str, schema: str
) -> None:
    """Kernels, copies, fills, calls and ranges are read whatever columns there are."""
    path = small_export(tmp_path / "a.sqlite", schema)
    trace = read(path)
    told = ("start_ns", "duration_ns", "correlation", "name")
    calls = [{"thread": 9, **dict(zip(told, row, strict=True))} for row in SMALL_CALLS]
    assert_frame_equal(trace.kernels, frame(TRACE_KERNELS, *SMALL_KERNELS))
    assert_frame_equal(trace.calls, frame(TRACE_CALLS, *calls))
    assert_frame_equal(trace.ranges, frame(TRACE_RANGES, SMALL_RANGE))
    assert trace.source == TraceSource(
        path=str(path),
        format=Format.NSYS,
        written_by=f"Nsight Systems {product}, schema {schema}",
        bytes=path.stat().st_size,
    )
    assert trace.origin_ns == 1_700_000_000 * 10**9 + 1000
    assert trace.notes == ()


def test_names_fall_back(tmp_path: Path) -> None:
    """The demangled name counts, else the short one, else the mangled one."""
    nameless: Row = {"demangledName": None, "shortName": None}
    path = nsys_file(
        tmp_path / "a.sqlite",
        {
            KERNELS: [
                kernel(1, 2),
                kernel(2, 3, demangledName=""),
                kernel(3, 4, **nameless, mangledName="_Z4gemmPf"),
                kernel(4, 5, **nameless),
            ]
        },
    )
    trace = read(path)
    assert trace.kernels["name"].to_list() == [
        "void gemm<float>(float*)",
        "gemm",
        "_Z4gemmPf",
        "(no name)",
    ]
    assert trace.notes == (TraceNote(kind="repaired", what="kernels without a name"),)


def test_correlations_are_of_a_process(tmp_path: Path) -> None:
    """An id that two processes use names a call of each of them."""
    path = nsys_file(
        tmp_path / "a.sqlite",
        {
            KERNELS: [
                kernel(10, 20, 5, globalPid=pid(9)),
                kernel(11, 20, 5, globalPid=pid(8), deviceId=1),
            ],
            CALLS: [
                call(1, 2, 5, "cudaLaunchKernel_v7000", process=8),
                call(3, 4, 5, "cudaLaunchKernel_v7000", process=9),
                call(5, 6, 5, "cudaLaunchKernel_v7000", process=7),
                call(5, 6, 5, "cudaEventQuery_v3020", process=7),
            ],
        },
    )
    trace = read(path)
    launched = trace.kernels.join(
        trace.calls, on=["process", "correlation"], maintain_order="left"
    )
    assert launched.select("process", "device", "start_ns_right").rows() == [
        (9, 0, 2),
        (8, 1, 0),
    ]
    assert trace.calls["process"].to_list() == [8, 9, 7]


def test_ranges_are_pushed_or_started(tmp_path: Path) -> None:
    """Marks and names of threads are no ranges; both forms of names are read."""
    path = nsys_file(
        tmp_path / "a.sqlite",
        {
            KERNELS: [kernel(100, 200)],
            RANGES: [
                span(1, 9, text="model.layers.3"),
                span(2, 8, textId="ncclSend"),
                span(3, 7, 60, text="inline", textId="by id"),
                span(4, 6, 34, text="mark"),
                span(5, None, 39, text="thread"),
                span(5, None, 75, text="domain"),
                span(6, None, text="never popped"),
            ],
        },
    )
    trace = read(path)
    assert trace.ranges.select("name", "start_ns", "end_ns").rows() == [
        ("model.layers.3", 0, 8),
        ("ncclSend", 1, 7),
        ("inline", 2, 6),
    ]
    assert trace.notes == (
        TraceNote(kind="dropped", what="ranges whose times are missing or wrong"),
    )


def test_reduced_tables_are_read(tmp_path: Path) -> None:
    """Kernels that lack a process take that of the only call with their id."""
    small = ("start", "end", "deviceId", "streamId", "correlationId", "shortName")
    rows = [kernel(10, 20, 5), kernel(20, 30, 6), kernel(30, 40, 7)]
    path = nsys_file(
        tmp_path / "a.sqlite",
        {
            "SMALL": [{name: row[name] for name in small} for row in rows],
            CALLS: [
                call(1, 2, 5, "cudaLaunchKernel", process=8),
                call(2, 3, 6, "cudaLaunchKernel", process=9),
                call(2, 3, 7, "cudaLaunchKernel", process=8),
                call(2, 3, 7, "cudaLaunchKernel", process=9),
            ],
        },
    )
    renamed(path, "SMALL", KERNELS)
    trace = read(path)
    assert trace.kernels["process"].to_list() == [8, 9, None]
    assert trace.kernels["name"].to_list() == ["gemm"] * 3


def renamed(path: Path, table: str, name: str) -> None:
    """Rename a table, past the columns that are written for its name."""
    database_file(path, {}, [f'ALTER TABLE "{table}" RENAME TO "{name}"'])


def test_resaved_tables_are_read(tmp_path: Path) -> None:
    """Whole numbers that became floats are the same; extra columns do no harm."""
    path = nsys_file(
        tmp_path / "a.sqlite",
        {
            KERNELS: [
                kernel(10, 20, graphNodeId=4294967298.0, kernel_name="gemm"),
                kernel(20, 30, graphNodeId=None, kernel_name="gemm"),
            ]
        },
    )
    trace = read(path)
    assert trace.kernels.select("graph", "graph_node").rows() == [
        (1, 4294967298),
        (None, None),
    ]


def test_values_of_wrong_types_are_missing(tmp_path: Path) -> None:
    """A kernel whose start is text is dropped and counted; other columns are null."""
    path = nsys_file(
        tmp_path / "a.sqlite",
        {
            KERNELS: [
                kernel(10, 20),
                {**kernel(20, 30), "start": "soon"},
                kernel(30, 40, deviceId="first", gridX=b"\0"),
                kernel(2**62, 2**62 + 5),
                kernel(40, 30),
            ]
        },
    )
    trace = read(path)
    columns = ("start_ns", "duration_ns", "device", "grid_x")
    assert trace.kernels.select(columns).rows() == [
        (0, 10, 0, 132),
        (20, 10, None, None),
        (30, 0, 0, 132),
    ]
    assert trace.notes == (
        TraceNote(kind="doubted", what="kernels of negative duration, taken as 0"),
        TraceNote(kind="dropped", what="kernels without times"),
        TraceNote(kind="dropped", what="kernels at impossible times"),
    )


def test_graph_level_recordings_are_not_trusted(tmp_path: Path) -> None:
    """Replays that are one row each become ranges, and the lack is said."""
    place = {"deviceId": 0, "contextId": 1, "streamId": 7, "globalPid": pid(9)}
    replays: list[Row] = [
        {"start": 100, "end": 180, "graphId": 7, "correlationId": 2, **place},
        {"start": 200, "end": 280, "graphId": None, "correlationId": 3, **place},
        {"start": 0, "end": 0, "graphId": 7, "correlationId": 4, **place},
    ]
    path = nsys_file(
        tmp_path / "a.sqlite",
        {
            "CUPTI_ACTIVITY_KIND_GRAPH_TRACE": replays,
            CALLS: [call(50, 60, 2, "cudaGraphLaunch_v10000")],
        },
    )
    trace = read(path)
    assert trace.kernels.is_empty()
    assert trace.calls["name"].to_list() == ["cudaGraphLaunch"]
    where = {"kind": "graph", "device": 0, "stream": 7}
    assert_frame_equal(
        trace.ranges,
        frame(
            TRACE_RANGES,
            {**where, "name": "CUDA graph 7", "start_ns": 50, "end_ns": 130},
            {**where, "name": "CUDA graph", "start_ns": 150, "end_ns": 230},
        ),
    )
    assert trace.notes[0] == TraceNote(
        kind="untrusted",
        what="replays of CUDA graphs whose kernels the file lacks: each is one row; "
        "record with nsys profile --cuda-graph-trace=node",
        count=3,
        about="kernels missing",
    )
    with pytest.raises(InputError, match="record with nsys profile") as caught:
        read_trace(path)
    assert str(caught.value).endswith("--cuda-graph-trace=node")


def test_gpus_are_described(tmp_path: Path) -> None:
    """A GPU is found by CUDA's number for it, which is not that of the machine."""
    gpu = {"computeMajor": 9, "computeMinor": 0, "smCount": 132, "totalMemory": 1 << 37}
    path = nsys_file(
        tmp_path / "a.sqlite",
        {
            KERNELS: [kernel(1, 2, deviceId=1)],
            "TARGET_INFO_GPU": [
                {"id": 0, "cuDevice": 1, "name": "NVIDIA H200", **gpu},
                {"id": 1, "cuDevice": 0, "name": "NVIDIA T4", **gpu},
            ],
        },
    )
    (device,) = read(path).devices
    assert (device.device, device.name) == (1, "NVIDIA H200")
    assert (device.architecture, device.processors) == ("sm_90", 132)
    assert device.memory_bytes == 1 << 37


def test_processes_that_number_gpus_anew_are_told_apart(tmp_path: Path) -> None:
    """Two GPUs that are both a process's device 0 get the machine's numbers."""
    path = nsys_file(
        tmp_path / "a.sqlite",
        {
            KERNELS: [
                kernel(1, 2, globalPid=pid(8)),
                kernel(2, 3, globalPid=pid(9)),
            ],
            "TARGET_INFO_GPU": [{"id": 4, "name": "A"}, {"id": 6, "name": "B"}],
            "TARGET_INFO_CUDA_DEVICE": [
                {"gpuId": 6, "cudaId": 0, "pid": 8},
                {"gpuId": 4, "cudaId": 0, "pid": 9},
            ],
        },
    )
    trace = read(path)
    assert trace.kernels.select("process", "device").rows() == [(8, 6), (9, 4)]
    assert [(each.device, each.name) for each in trace.devices] == [(4, "A"), (6, "B")]
    assert trace.notes == (
        TraceNote(
            kind="repaired", what="processes that number the GPUs in ways of their own"
        ),
    )


def test_warnings_of_loss_are_passed_on(tmp_path: Path) -> None:
    """What Nsight Systems says about events that it missed is a doubt."""
    texts = ["Profiling has started.", "Not all CUDA events might have been collected."]
    warnings: list[Row] = [{"text": text} for text in texts]
    path = nsys_file(
        tmp_path / "a.sqlite",
        {KERNELS: [kernel(1, 2)], "DIAGNOSTIC_EVENT": warnings},
    )
    assert read(path).notes == (
        TraceNote(
            kind="doubted",
            what="warnings of Nsight Systems that it did not collect all CUDA events",
        ),
    )


def test_packed_exports_are_read(tmp_path: Path) -> None:
    """A gzip of an export is the same trace."""
    plain = nsys_file(tmp_path / "a.sqlite", {KERNELS: [kernel(1, 2)]})
    packed = written(tmp_path / "b.gz", gzipped(plain.read_bytes()))
    assert_frame_equal(read(packed).kernels, read(plain).kernels)


def test_cut_exports_are_read_as_far_as_they_go(tmp_path: Path) -> None:
    """The kernels before the end of a cut file are read, and the cut is noted."""
    rows = [kernel(10 * at, 10 * at + 5, at) for at in range(1, 4001)]
    whole = nsys_file(tmp_path / "a.sqlite", {KERNELS: rows}, NEWEST)
    data = whole.read_bytes()
    path = written(tmp_path / "b.sqlite", data[: len(data) // 2])
    log = TraceLog()
    trace = read(path, log)
    assert 1000 < trace.kernels.height < 3000
    assert {note.kind for note in trace.notes} == {"dropped", "repaired"}


REAL: Final = (
    ("NVIDIA-Fuser/report1.581632.sqlite", 0, 19, 1, 507.663, 0.394, 0.394),
    ("nsys-ai/healthy_1pct.v2.sqlite", 0, 400, 1, 403.990, 400.000, 400.000),
    ("nsys-ai/mfu_2gpu_after.sqlite", 1, 1794, 1, 299.238, 251.362, 251.362),
    ("nsys-ai/mfu_2gpu_after.sqlite", 0, 1793, 1, 299.220, 237.473, 237.473),
    ("nsys-ai/mfu_2gpu_before.sqlite", 1, 2017, 1, 298.662, 264.325, 264.325),
    ("nsys-ai/mfu_2gpu_before.sqlite", 0, 1993, 1, 299.849, 270.876, 270.863),
    ("nsys-ai/mock.sqlite", 0, 2, 1, 18.255, 0.004, 0.004),
    ("test-cuda/report1.sqlite", 0, 4, 4, 69.592, 0.537, 0.537),
)
"""File, device, kernels, streams; span, sum and union in ms."""


@pytest.mark.parametrize("facts", REAL)
def test_real_exports_have_their_figures(
    facts: tuple[str, int, int, int, float, float, float],
) -> None:
    """Counts and times of real files are those known of them, to the last digit."""
    name, device, count, streams, *times = facts
    trace = read(real_trace(name))
    found = trace.kernels.filter(
        pl.col("kind") == "kernel", pl.col("device") == device
    ).with_columns(end_ns=pl.col("start_ns") + pl.col("duration_ns"))
    swept = sweep(found.with_row_index("node"), ["device"])
    lines = found.select("process", "context", "stream").n_unique()
    measured_ns = (
        max(found["end_ns"]) - found["start_ns"].item(0),
        sum(found["duration_ns"]),
        sum(swept["exclusive_ns"]),
    )
    measured = [round(each / 1e6, 3) for each in measured_ns]
    assert (found.height, lines, measured) == (count, streams, times)
    assert trace.notes == ()


@pytest.mark.parametrize(
    ("name", "ranges", "unlinked", "launches"),
    [
        (
            "NVIDIA-Fuser/report1.581632.sqlite",
            652,
            0,
            {"cudaLaunchKernel": 17, "cuLaunchKernelEx": 1, "cuLaunchKernel": 1},
        ),
        (
            "nsys-ai/mfu_2gpu_after.sqlite",
            17113,
            10,
            {"cudaLaunchKernel": 3220, "cuLaunchKernelEx": 360},
        ),
        (
            "nsys-ai/mfu_2gpu_before.sqlite",
            19118,
            24,
            {"cudaLaunchKernel": 3604, "cuLaunchKernelEx": 402},
        ),
        ("nsys-ai/healthy_1pct.v2.sqlite", 0, 0, {"cudaLaunchKernel": 400}),
        ("nsys-ai/mock.sqlite", 0, 0, {"cudaLaunchKernel": 2}),
        ("test-cuda/report1.sqlite", 0, 0, {"cudaLaunchKernel": 4}),
    ],
)
def test_real_exports_are_linked(
    name: str, ranges: int, unlinked: int, launches: dict[str, int]
) -> None:
    """Kernels of real files find their launches, each within its own process."""
    trace = read(real_trace(name))
    kernels = trace.kernels.filter(kind="kernel")
    alone = kernels.join(
        trace.calls, on=["process", "correlation"], how="anti", nulls_equal=True
    )
    called = trace.calls.filter(pl.col("name").str.contains("Launch"))["name"]
    assert trace.ranges.height == ranges
    assert alone.height == unlinked
    assert dict(called.value_counts().iter_rows()) == launches


def test_real_overlap_is_kept() -> None:
    """The one kernel of a real file that starts before another's end still does."""
    trace = read(real_trace("nsys-ai/mfu_2gpu_before.sqlite"))
    assert overlaps_ns(trace) == [12_442]


def overlaps_ns(trace: Trace) -> list[int]:
    """By how much kernels reach into the next one of their stream."""
    kernels = trace.kernels.filter(kind="kernel")
    lines = kernels.partition_by("process", "device", "context", "stream")
    return [
        start + duration - following
        for line in lines
        for (start, duration), (following, _) in pairwise(
            line.select("start_ns", "duration_ns").iter_rows()
        )
        if start + duration > following
    ]
