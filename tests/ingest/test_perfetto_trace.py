import sys
from pathlib import Path
from typing import Any

import pytest
from polars.testing import assert_frame_equal

from layerscope.errors import InputError
from layerscope.schema import TRACE_CALLS, TRACE_KERNELS, TRACE_RANGES
from layerscope.trace import TraceNote
from tests.ingest.perfetto_packets import BEGIN, CLEARED, END, NEEDED, PacketFile
from tests.ingest.reading import counts, frame, read
from tests.ingest.real_traces import real_trace

MOVED = (
    "overlaps of kernels on a queue: rocprofv3 takes them away when it writes a "
    "pftrace, by moving both kernels; its csv, json and rocpd keep the times"
)
NEVER_ENDS = "slices that never end"


def times(begin: int, end: int, **told: Any) -> dict[str, Any]:  # noqa: ANN401
    """Arguments of a slice of rocprofv3."""
    return {"begin_ns": begin, "end_ns": end, "delta_ns": end - begin, **told}


def kernel(begin: int, end: int, **told: Any) -> dict[str, Any]:  # noqa: ANN401
    """Arguments of a kernel of rocprofv3."""
    usual = {
        "kind": 11,
        "agent": "Agent-4",
        "corr_id": 8,
        "queue": 1,
        "VGPR_Count": 12,
        "Accum_VGPR_Count": 4,
        "LDS_Block_Size": 512,
        "workgroup_size": 128,
        "grid_size": 1000,
        "stream_ID": 3,
    }
    return times(begin, end, **{**usual, **told})


def rocprof_file() -> PacketFile:
    """Two kernels, a copy, calls and a marker, as rocprofv3 writes them."""
    made = PacketFile()
    snapshot = made.packet().clock_snapshot
    for clock, reading in ((6, 1_000), (1, 5_000_001_000)):
        snapshot.clocks.add(clock_id=clock, timestamp=reading)
    made.process(1, pid=70)
    made.track(2, "THREAD 1 (71)", parent=1)
    made.track(3, 'STREAM [" 3 "] ', parent=1)
    for begin, end, name, category, told in (
        (1_000, 1_200, "hipGraphLaunch", "hip_api", {"tid": 71, "corr_id": 8}),
        (900, 950, "hipFree", "hip_api", {"corr_id": 1}),
        (910, 920, "hsa_init", "hsa_api", {"corr_id": 2}),
        (800, 2_600, "step 1", "marker_api", {"corr_id": 3}),
        (810, 810, "mark", "marker_api", {"corr_id": 4}),
    ):
        made.begin(begin, 2, name, category, times(begin, end, **told))
        made.end(end, 2)
    for begin, end in ((2_000, 2_300), (1_500, 1_900)):
        made.begin(begin, 3, "mul.kd", "kernel_dispatch", kernel(begin, end))
        made.end(end, 3)
    copy = {"corr_id": 9, "dst_agent": "Agent-4", "stream_ID": 3}
    made.begin(2_400, 3, "HOST_TO_DEVICE", "memory_copy", times(2_400, 2_500, **copy))
    made.end(2_500, 3)
    return made


def test_what_rocprofv3_writes_is_read(tmp_path: Path) -> None:
    """Times are those of the arguments; products of extents stand in x."""
    trace = read(rocprof_file().write(tmp_path))
    work = {
        "device": 4,
        "context": 1,
        "stream": 3,
        "kind": "kernel",
        "name": "mul",
        "correlation": 8,
        "grid_x": 8,
        "block_x": 128,
        "registers": 16,
        "shared_bytes": 512,
    }
    assert_frame_equal(
        trace.kernels,
        frame(
            TRACE_KERNELS,
            {**work, "start_ns": 700, "duration_ns": 400},
            {**work, "start_ns": 1200, "duration_ns": 300},
            {
                "device": 4,
                "stream": 3,
                "kind": "copy",
                "name": "HOST_TO_DEVICE",
                "start_ns": 1600,
                "duration_ns": 100,
                "correlation": 9,
            },
        ),
    )
    call = {"thread": 71}
    free = {"name": "hipFree", "start_ns": 100, "duration_ns": 50}
    launch = {"name": "hipGraphLaunch", "start_ns": 200, "duration_ns": 200}
    assert_frame_equal(
        trace.calls,
        frame(
            TRACE_CALLS,
            {**call, **free, "correlation": 1},
            {**call, **launch, "correlation": 8},
        ),
    )
    marker = {"kind": "annotation", "name": "step 1", "start_ns": 0, "end_ns": 1800}
    assert_frame_equal(trace.ranges, frame(TRACE_RANGES, {**call, **marker}))
    assert trace.origin_ns == 5_000_000_800
    assert trace.source.written_by == "rocprofv3"
    note = TraceNote(kind="untrusted", what=MOVED, about="overlaps rewritten")
    assert trace.notes == (note,)


def test_queues_are_read_from_names_of_tracks(tmp_path: Path) -> None:
    """Older files tell device and queue there alone."""
    made = PacketFile()
    made.track(3, "COMPUTE GPU [2] QUEUE [5] GPU")
    made.begin(100, 3, "mul", "kernel_dispatch", times(100, 150))
    made.end(150, 3)
    found = read(made.write(tmp_path)).kernels.select("device", "context", "stream")
    assert found.rows() == [(2, 5, 5)]


def test_a_file_that_was_cut_gives_what_is_whole(tmp_path: Path) -> None:
    """The last packet, of which a part is missing, is counted."""
    path = tmp_path / "made.pftrace"
    made = rocprof_file()
    path.write_bytes(made.bytes()[:-5])
    trace = read(path)
    assert trace.kernels["kind"].to_list() == ["kernel", "kernel", "copy"]
    cut = "packets cut off at the end of the file"
    assert counts(trace.notes) == {MOVED: 1, cut: 1}


def test_ends_are_paired_on_their_track(tmp_path: Path) -> None:
    """Slices without times of their own end where their track says, in time's order."""
    made = PacketFile()
    made.end(50, 3)
    for at, track, name in ((10, 3, "outer"), (12, 4, "other"), (20, 3, "inner")):
        made.begin(at, track, name, "kernel", {"stream": track})
    for at, track in ((30, 3), (25, 4), (60, 4)):
        made.end(at, track)
    made.begin(70, 3, "endless", "kernel")
    trace = read(made.write(tmp_path))
    assert trace.kernels.select("name", "start_ns", "duration_ns", "stream").rows() == [
        ("outer", 0, 40, 3),
        ("other", 2, 13, 4),
        ("inner", 10, 10, 3),
    ]
    assert counts(trace.notes) == {
        NEVER_ENDS: 1,
        "ends of slices that never began": 1,
    }


def test_texts_and_defaults_hold_within_a_sequence(tmp_path: Path) -> None:
    """Numbers of texts are those of the packet's own sequence, until it clears them."""
    made = PacketFile(cleared=False)
    for sequence, name in ((7, "mul"), (8, "add")):
        first = made.packet(
            trusted_packet_sequence_id=sequence, sequence_flags=CLEARED | NEEDED
        )
        first.interned_data.event_names.add(iid=1, name=name)
        first.interned_data.event_categories.add(iid=1, name="kernel")
        first.interned_data.debug_annotation_names.add(iid=1, name="stream")
        first.trace_packet_defaults.track_event_defaults.track_uuid = sequence
    for sequence, at in ((7, 10), (8, 11)):
        for time, kind in ((at, BEGIN), (at + 5, END)):
            event = made.packet(
                trusted_packet_sequence_id=sequence,
                sequence_flags=NEEDED,
                timestamp=time,
            ).track_event
            event.type = kind
            if kind == BEGIN:
                event.name_iid = 1
                event.category_iids.append(1)
                event.debug_annotations.add(name_iid=1, uint_value=sequence)
    lost = made.packet(
        trusted_packet_sequence_id=7,
        sequence_flags=NEEDED,
        previous_packet_dropped=1,
        timestamp=20,
    )
    lost.track_event.type = END
    trace = read(made.write(tmp_path))
    assert trace.kernels.select("name", "stream", "start_ns", "duration_ns").rows() == [
        ("mul", 7, 0, 5),
        ("add", 8, 1, 5),
    ]
    assert counts(trace.notes) == {"packets whose names were lost before them": 1}


def test_processes_are_told_apart_where_there_are_several(tmp_path: Path) -> None:
    """A lone process is null, as in other formats."""
    made = rocprof_file()
    assert read(made.write(tmp_path)).kernels["process"].null_count() == 3
    made.process(10, pid=80)
    made.track(11, "STREAM [3]", parent=10)
    made.begin(3_000, 11, "add", "kernel_dispatch", kernel(3_000, 3_100))
    made.end(3_100, 11)
    trace = read(made.write(tmp_path))
    assert trace.kernels["process"].to_list() == [70, 70, 70, 80]
    assert trace.calls["process"].to_list() == [70, 70]


def test_stages_of_computing_are_kernels(tmp_path: Path) -> None:
    """Those of graphics are counted and left out."""
    made = PacketFile()
    interned = made.packet().interned_data
    interned.graphics_contexts.add(iid=1, api=4)  # CUDA
    interned.graphics_contexts.add(iid=2, api=2)  # Vulkan
    interned.gpu_specifications.add(iid=5, name="Stream 7")
    interned.gpu_specifications.add(iid=6, name="gemm")
    for at, context in ((100, 1), (300, 2)):
        event = made.packet(timestamp=at).gpu_render_stage_event
        event.duration, event.gpu_id, event.context = 40, 1, context
        event.hw_queue_iid, event.stage_iid = 5, 6
        event.launch.grid_size.x = 3 if context == 1 else 0
    made.trace.packet[-1].gpu_render_stage_event.ClearField("launch")
    trace = read(made.write(tmp_path))
    expected = {
        "device": 1,
        "context": 1,
        "stream": 5,
        "kind": "kernel",
        "name": "gemm",
        "start_ns": 0,
        "duration_ns": 40,
        "grid_x": 3,
        "grid_y": 0,
        "grid_z": 0,
        "block_x": 0,
        "block_y": 0,
        "block_z": 0,
    }
    assert_frame_equal(trace.kernels, frame(TRACE_KERNELS, expected))
    assert counts(trace.notes) == {"stages of graphics on a GPU": 1}


def test_an_export_of_layerscope_is_read_and_named(tmp_path: Path) -> None:
    """Operators of a CPU are no work of a GPU."""
    made = PacketFile()
    told = {
        "kind": "kernel",
        "hidden_ns": 5,
        "grid": {"x": 4, "y": 2, "z": 1},
        "block": {"x": 32, "y": 1, "z": 1},
        "stream": 13,
    }
    made.begin(100, 3, "mul", "kernel", told)
    made.end(140, 3)
    made.begin(150, 3, "aten::mul", "kernel", {"kind": "operator"})
    made.end(160, 3)
    trace = read(made.write(tmp_path))
    found = trace.kernels.select("name", "stream", "grid_x", "grid_y", "block_x")
    assert found.rows() == [("mul", 13, 4, 2, 32)]
    (note,) = trace.notes
    assert (note.kind, note.what.split(",")[0]) == (
        "untrusted",
        "an export of layerscope",
    )


def test_a_trace_without_events_has_no_kernels(tmp_path: Path) -> None:
    """It is a trace, and a note says so."""
    trace = read(PacketFile().write(tmp_path))
    assert trace.kernels.is_empty()
    assert counts(trace.notes) == {"of kernels, calls and markers there are none": 1}


def test_what_holds_no_packets_is_refused(tmp_path: Path) -> None:
    """One line says so."""
    path = tmp_path / "made.pftrace"
    path.write_bytes(b"no protobuf at all")
    with pytest.raises(InputError, match="holds no packets of Perfetto"):
        read(path)


def test_the_missing_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what to install."""
    path = rocprof_file().write(tmp_path)
    name = "perfetto.protos.perfetto.trace.perfetto_trace_pb2"
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        InputError, match=r"without its library; pip install 'layerscope\[perfetto\]'"
    ):
        read(path)


def test_a_real_pftrace_has_its_kernels() -> None:
    """15 kernels of a Julia program on one stream, and the calls that launched them."""
    trace = read(real_trace("JACC.jl/3648722_results.pftrace"))
    assert (trace.kernels.height, trace.calls.height) == (15, 1125)
    assert trace.kernels["duration_ns"].sum() == 194_762
    ends = trace.kernels["start_ns"] + trace.kernels["duration_ns"]
    assert (trace.kernels["start_ns"].min(), ends.max()) == (
        13_089_764_430,
        13_089_764_430 + 7_024_978_391,
    )
    linked = trace.kernels.join(trace.calls, on="correlation")
    assert linked.height == 15
    assert counts(trace.notes) == {MOVED: 1}


@pytest.mark.parametrize(
    ("name", "calls"), [("3634724", 5), ("3634736", 0), ("3635359", 1132)]
)
def test_real_pftraces_without_kernels_are_read(name: str, calls: int) -> None:
    """Their calls of HIP are there, if there are any."""
    trace = read(real_trace(f"JACC.jl/{name}_results.pftrace"))
    assert (trace.kernels.height, trace.calls.height) == (0, calls)
    (note,) = trace.notes
    assert note.kind == "untrusted"
