import zipfile
from pathlib import Path

import msgspec
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.ingest.content import contents_of
from layerscope.schema import TRACE_CALLS, TRACE_KERNELS, TRACE_RANGES
from tests.ingest.reading import counts, frame, read, read_content
from tests.ingest.real_traces import real_trace
from tests.ingest.rocprof_tables import (
    API,
    CALLS,
    KERNELS_2024,
    KERNELS_2025,
    MARKERS,
    write_all,
)

LAUNCH = {"context": 1, "stream": 3, "kind": "kernel", "device": 4, "correlation": 8}
SIZES = {"grid_y": 1, "grid_z": 1, "block_x": 64, "block_y": 1, "block_z": 1}
SAID = {"name": 'say "x" once', "duration_ns": 400, "grid_x": 2}
MUL = {"name": "mul", "duration_ns": 300, "grid_x": 2}
RESOURCES = {"registers": 16, "shared_bytes": 256}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A folder with all files of one process."""
    return write_all(tmp_path)


def test_kernels_of_2024_are_read(tmp_path: Path) -> None:
    """Agents are numbers, the queue stands for the stream, extents become blocks."""
    path = tmp_path / "kernel_trace.csv"
    path.write_text(KERNELS_2024)
    trace = read(path)
    expected = {
        "device": 1,
        "context": 2,
        "stream": 2,
        "kind": "kernel",
        "name": "void add<int, 4>(float*, int)",
        "start_ns": 0,
        "duration_ns": 150,
        "correlation": 8,
        "shared_bytes": 512,
        "grid_x": 16,
        "grid_y": 3,
        "grid_z": 1,
        "block_x": 64,
        "block_y": 2,
        "block_z": 1,
    }
    assert_frame_equal(trace.kernels, frame(TRACE_KERNELS, expected))
    assert trace.source.written_by == "rocprofv3"
    assert not trace.notes


@pytest.mark.parametrize(
    "given", ["kernel_trace", "hip_api_trace", "memory_copy_trace", "agent_info"]
)
def test_the_files_of_a_process_are_one_trace(run: Path, given: str) -> None:
    """Any of them may be given; time 0 is the earliest start among all."""
    trace = read(run / f"70_{given}.csv")
    copy = {"kind": "copy", "device": 4, "stream": 0, "duration_ns": 100}
    there, back = "MEMORY_COPY_HOST_TO_DEVICE", "MEMORY_COPY_DEVICE_TO_HOST"
    kernels = frame(
        TRACE_KERNELS,
        {**LAUNCH, **SIZES, **RESOURCES, **SAID, "start_ns": 700},
        {**LAUNCH, **SIZES, **RESOURCES, **MUL, "start_ns": 1200},
        {**copy, "name": there, "start_ns": 1600, "correlation": 9},
        {**copy, "name": back, "start_ns": 1800, "correlation": 10},
    )
    assert_frame_equal(trace.kernels, kernels)
    load = {"start_ns": 100, "duration_ns": 50, "correlation": 1}
    launch = {"start_ns": 200, "duration_ns": 200, "correlation": 8}
    store = {"start_ns": 220, "duration_ns": 20, "correlation": 8}
    calls = frame(
        TRACE_CALLS,
        {"thread": 71, "name": "__hipRegisterFatBinary", **load},
        {"thread": 71, "name": "hipGraphLaunch", **launch},
        {"thread": 71, "name": "hsa_queue_store", **store},
    )
    assert_frame_equal(trace.calls, calls)
    marker = {"kind": "annotation", "name": "step 1", "start_ns": 0, "end_ns": 1800}
    assert_frame_equal(trace.ranges, frame(TRACE_RANGES, {"thread": 71, **marker}))
    assert [msgspec.structs.astuple(each) for each in trace.devices] == [
        (device, "AMD Instinct MI350X", "gfx950", 256, 0) for device in (4, 5)
    ]
    assert not trace.notes


@pytest.mark.parametrize(("agent", "device"), [("Agent 6", 6), ("GPU 1", 1)])
def test_devices_are_numbered_as_kernels_are(
    run: Path, agent: str, device: int
) -> None:
    """--agent-index tells how; the file of agents does not say which was taken."""
    path = run / "70_kernel_trace.csv"
    path.write_text(KERNELS_2025.replace("Agent 4", agent))
    (run / "70_memory_copy_trace.csv").unlink()
    trace = read(path)
    assert trace.kernels["device"].unique().to_list() == [device]
    assert device in {each.device for each in trace.devices}


def test_files_in_an_archive_are_one_trace(run: Path, tmp_path: Path) -> None:
    """Those beside a member of a zip are other members."""
    archive = tmp_path / "run.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(run.glob("*.csv")):
            packed.write(path, f"node/{path.name}")
    kernels, plain = (
        next(each for each in contents_of(archive) if "kernel_trace" in each.member),
        read(run / "70_kernel_trace.csv"),
    )
    trace = read_content(kernels)
    assert_frame_equal(trace.kernels, plain.kernels)
    assert_frame_equal(trace.calls, plain.calls)
    assert_frame_equal(trace.ranges, plain.ranges)


def test_files_of_another_recording_are_left_out(tmp_path: Path) -> None:
    """Under rocprofv3's own names, files of several recordings meet in a folder."""
    (tmp_path / "kernel_trace.csv").write_text(KERNELS_2025)
    (tmp_path / "marker_api_trace.csv").write_text(MARKERS)
    later = "4000000000000"  # more than an hour
    call = f'"HIP_RUNTIME_API","hipFree",70,71,8,{later},{later}'
    (tmp_path / "hip_trace.csv").write_text(f"{API}{call}\n")
    trace = read(tmp_path / "kernel_trace.csv")
    assert (trace.calls.height, trace.ranges["name"].to_list()) == (0, ["step 1"])
    assert counts(trace.notes) == {"files of the same prefix from another recording": 1}
    given = read(tmp_path / "hip_trace.csv")
    assert (given.calls.height, given.kernels.height) == (1, 0)


def test_headers_that_rocpd_writes_are_read(tmp_path: Path) -> None:
    """They differ in case, and processes are told apart by their GUID."""
    header, first, second = KERNELS_2025.splitlines()
    path = tmp_path / "out_kernel_trace.csv"
    lines = (f'"Guid",{header.title()}', f'"aa-1",{first}', f'"bb-2",{second}')
    path.write_text("\n".join(lines))
    calls = CALLS.splitlines()
    (tmp_path / "out_hip_api_trace.csv").write_text(
        f'"Guid",{calls[0]}\n"bb-2",{calls[1]}\n'
    )
    trace = read(path)
    by_name = dict(trace.kernels.select("name", "process").iter_rows())
    assert by_name == {"mul": 0, 'say "x" once': 1}
    assert trace.calls["process"].to_list() == [1]
    assert trace.source.written_by == "rocprofv3, converted by rocpd"


def test_one_guid_is_no_process(tmp_path: Path) -> None:
    """Where there is nothing to tell apart, process is null as in other files."""
    header, first, _ = KERNELS_2025.splitlines()
    path = tmp_path / "out_kernel_trace.csv"
    path.write_text(f'"Guid",{header}\n"aa-1",{first}\n')
    assert read(path).kernels["process"].to_list() == [None]


def test_kernels_of_one_graph_share_a_correlation(run: Path) -> None:
    """All of them join the one hipGraphLaunch."""
    trace = read(run / "70_kernel_trace.csv")
    joined = trace.kernels.join(
        trace.calls.filter(name="hipGraphLaunch"), on="correlation"
    )
    assert joined["name"].to_list() == ['say "x" once', "mul"]


def test_damage_costs_its_rows(tmp_path: Path) -> None:
    """Times that are no numbers and a last line that was cut are dropped, counted."""
    path = tmp_path / "kernel_trace.csv"
    damaged = KERNELS_2025.replace('"2000"', '"20x0"') + '"KERNEL_DISPATCH","Agent'
    path.write_text(damaged)
    trace = read(path)
    assert trace.kernels["name"].to_list() == ['say "x" once']
    assert counts(trace.notes) == {
        "lines cut off at the end of a file": 1,
        "kernels without times": 1,
    }


def test_markers_alone_are_a_trace_without_kernels(tmp_path: Path) -> None:
    """A note says what is missing."""
    path = tmp_path / "marker_api_trace.csv"
    path.write_text(MARKERS)
    trace = read(path)
    assert (trace.kernels.height, trace.ranges["name"].to_list()) == (0, ["step 1"])
    (note,) = trace.notes
    assert (note.kind, note.what) == (
        "untrusted",
        "of kernels there are none, only markers",
    )


def test_several_processes_in_one_file_are_doubted(run: Path) -> None:
    """Kernels have no process, so that files put together mix their correlations."""
    path = run / "70_hip_api_trace.csv"
    path.write_text(CALLS + '"HIP_RUNTIME_API","hipFree",99,99,8,1000,1100\n')
    notes = counts(read(run / "70_kernel_trace.csv").notes)
    assert notes == {"processes in one file, whose kernels say none": 2}


def test_a_real_decode_has_its_kernels() -> None:
    """llama.cpp on HIP graphs: four of them, 24 kernels each, one with its launch."""
    trace = read(real_trace("rocprof-unified-viewer/decode_kernel_trace.csv"))
    shared = trace.kernels.group_by("correlation").len().filter(pl.col("len") > 1)
    assert dict(shared.iter_rows()) == dict.fromkeys((53859, 63903, 64035, 64168), 24)
    assert (trace.calls.height, set(trace.kernels["stream"])) == (920, {2})
    assert trace.kernels["duration_ns"].sum() == 1_857_381
    graphs = trace.calls.filter(name="hipGraphLaunch")["correlation"]
    assert set(graphs) & set(shared["correlation"]) == {64168}
    unlinked = trace.kernels.join(trace.calls, on="correlation", how="anti")
    assert unlinked.height == 117


def test_a_real_prefill_is_one_graph() -> None:
    """1123 of 1128 kernels are of one launch, on two queues."""
    trace = read(real_trace("rocprof-unified-viewer/prefill_hip_api_trace.csv"))
    assert trace.kernels.height == 1128
    assert trace.kernels.filter(correlation=57328).height == 1123
    assert trace.kernels["context"].n_unique() == 2
    assert trace.kernels["duration_ns"].sum() == 66_066_571
    assert not trace.notes
