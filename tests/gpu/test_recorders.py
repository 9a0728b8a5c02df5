import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

pytest.importorskip("cupti", reason="the cuda extra is not installed")

from layerscope.graphs.cuda import GraphPlayer, GraphReplay
from layerscope.graphs.replay import Body, Replay
from layerscope.graphs.torch_graph import TorchGraphPlayer
from layerscope.record.cupti import CuptiRecorder
from layerscope.record.recorder import Launch, Recorded, fault, kernels
from layerscope.record.torch_profiler import TorchProfilerRecorder


def launches(replay: Replay, count: int) -> list[Launch]:
    """`count` launches of `replay` under one arm."""
    return [Launch(replay, "reference", 0, index) for index in range(count)]


@pytest.fixture(scope="module")
def replay(player: GraphPlayer, body: Body) -> GraphReplay:
    captured = player.capture(body, 3)
    captured.launch()
    return captured


def sequence(recorded: Recorded) -> list[tuple[int, str, str]]:
    """(pass, region, name) of every record in order of its start."""
    events = sorted(recorded.events, key=lambda event: event.start_ns)
    places = [recorded.places[event.node] for event in events]
    return [
        (place.pass_index, place.region, event.name)
        for place, event in zip(places, events, strict=True)
    ]


def test_cupti_maps_every_record_of_graphs_captured_before_it(
    replay: GraphReplay,
) -> None:
    """All records find their node, on every launch, also after attaching again."""
    recorder = CuptiRecorder()
    for _ in range(2):
        with recorder.attached():
            recordings = recorder.record(launches(replay, 5))
        assert [fault(recorded) for recorded in recordings] == [None] * 5
        assert [recorded.unmapped for recorded in recordings] == [0] * 5
        nodes = [sorted(e.node for e in recorded.events) for recorded in recordings]
        assert nodes == [[node.index for node in replay.nodes]] * 5


def test_a_chain_without_programmatic_edges_never_overlaps(
    replay: GraphReplay,
) -> None:
    """Starts follow creation order, and no kernel starts before the one before ends."""
    recorder = CuptiRecorder()
    with recorder.attached():
        (recorded,) = recorder.record(launches(replay, 1))
    events = sorted(recorded.events, key=lambda event: event.node)
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(events))


def test_kernels_carry_their_launch_geometry(replay: GraphReplay) -> None:
    """Grid, block and registers are known for kernels."""
    recorder = CuptiRecorder()
    with recorder.attached():
        frame = kernels(recorder.record(launches(replay, 2)))
    geometry = frame.filter(kind="kernel").select("grid_x", "block_x", "registers")
    assert geometry.null_count().row(0) == (0, 0, 0)
    assert geometry.min().row(0) >= (1, 1, 1)


def test_torch_profiler_sees_the_same_sequence_as_cupti(
    replay: GraphReplay,
) -> None:
    """The fallback's mapping by order agrees with CUPTI's by node, name by name."""
    cupti = CuptiRecorder()
    with cupti.attached():
        exact = cupti.record(launches(replay, 2))
    by_order = TorchProfilerRecorder(torch.device("cuda"))
    with by_order.attached():
        guessed = by_order.record(launches(replay, 2))
    assert [fault(recorded) for recorded in guessed] == [None, None]
    places = [[row[:2] for row in sequence(recorded)] for recorded in exact]
    assert [[row[:2] for row in sequence(recorded)] for recorded in guessed] == places


def test_torch_profiler_maps_replays_of_torchs_own_graphs(body: Body) -> None:
    """Without any bindings of CUDA a replay is still mapped record by record."""
    replay = TorchGraphPlayer().capture(body, 3)
    recorder = TorchProfilerRecorder(torch.device("cuda"))
    with recorder.attached():
        recordings = recorder.record(launches(replay, 3))
    assert [fault(recorded) for recorded in recordings] == [None] * 3
    assert [recorded.unmapped for recorded in recordings] == [0] * 3


MARKERS = Path(__file__).with_name("nvtx_markers.py")


def test_nvtx_ranges_of_arms_passes_and_regions_reach_cupti() -> None:
    """Marker records show them around capture and recording, none while timing."""
    done = subprocess.run(
        [sys.executable, MARKERS], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    captured, timed, recorded = done.stdout.splitlines()
    labels = set(captured.split(","))
    assert {"layerscope:pass:0", "layerscope:pass:1"} <= labels
    assert {"layerscope:region:attention", "layerscope:region:moe"} <= labels
    assert "layerscope:arm:reference" in labels
    assert timed == "-"
    assert recorded == "layerscope:arm:reference"
