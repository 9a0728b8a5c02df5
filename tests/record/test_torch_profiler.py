from itertools import pairwise

import pytest
import torch

from layerscope.errors import MeasurementError
from layerscope.graphs.eager import EagerReplay
from layerscope.record import torch_profiler
from layerscope.record.kineto import Expected, Raw, by_order
from layerscope.record.recorder import Launch, fault, head_place
from layerscope.record.torch_profiler import TorchProfilerRecorder
from layerscope.regions import Region, layer_pass, region
from tests.record.rows import ATTENTION, CPU, EXPECTED, GPU, GROUP, LAUNCH, MOE, REPLAY


def small_layer(passes: int) -> None:
    """A head and two regions a pass, of plain operators."""
    x = torch.ones(4, 4)
    with region(Region.OTHER):
        x.add_(1)
    for index in range(passes):
        with layer_pass(index):
            with region(Region.ATTENTION):
                x = torch.nn.functional.linear(x, x)
            with region(Region.MOE):
                x = x * 2


def test_a_cpu_replay_is_recorded_operator_by_operator() -> None:
    """Each launch has its own events at its own time, placed by pass and region."""
    replay = EagerReplay(small_layer, 2)
    recorder = TorchProfilerRecorder(CPU)
    launches = [Launch(replay, "reference", 0, index) for index in range(3)]
    with recorder.attached():
        recordings = recorder.record(launches)
    assert [recorded.launch for recorded in recordings] == launches
    chain = [(ATTENTION, "aten::linear"), (MOE, "aten::mul")]
    chain += [(place._replace(pass_index=1), name) for place, name in chain]
    for recorded in recordings:
        assert fault(recorded) is None
        assert [(recorded.places[e.node], e.name) for e in recorded.events] == [
            (head_place(), "aten::ones"),
            (head_place(), "aten::add_"),
            *chain,
        ]
        assert {event.kind for event in recorded.events} == {"operator"}
    events = [event for recorded in recordings for event in recorded.events]
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(events))


def test_a_cpu_replay_without_operators_is_a_fault() -> None:
    """A layer that did nothing is not one that took no time."""
    (recorded,) = TorchProfilerRecorder(CPU).record([LAUNCH])
    assert fault(recorded) == "nothing was recorded"


def gpu_session(monkeypatch: pytest.MonkeyPatch, raws: list[Raw]) -> list[EagerReplay]:
    """Let a session on a GPU give `raws`; the replays that were run eagerly for it."""
    eager: list[EagerReplay] = []

    def sequence(replay: EagerReplay) -> list[Expected]:
        eager.append(replay)
        return EXPECTED

    monkeypatch.setattr(torch_profiler, "_eager_sequence", sequence)
    monkeypatch.setattr(torch_profiler, "_profiled", lambda *_, **__: raws)
    return eager


def later(by_ns: int, launch: int) -> list[Raw]:
    """The group of another launch."""
    return [
        raw._replace(
            start_ns=raw.start_ns + by_ns, end_ns=raw.end_ns + by_ns, correlation=launch
        )
        for raw in GROUP
    ]


def rounds(count: int) -> list[Launch]:
    """Launches of two arms that share a replay, round by round."""
    return [
        Launch(REPLAY, arm, 0, index)
        for index in range(count)
        for arm in ("reference", "fused")
    ]


def test_gpu_launches_are_mapped_in_order_after_a_round_of_warm_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first round of a session is not kept; each replay runs eagerly once."""
    groups = [later(100 * launch, launch) for launch in range(6)]
    shuffled = [raw for index in (3, 0, 5, 2, 1, 4) for raw in groups[index]]
    eager = gpu_session(monkeypatch, shuffled)
    launches, recorder = rounds(2), TorchProfilerRecorder(GPU)
    expected = [
        by_order(launch, EXPECTED, group)
        for launch, group in zip(launches, groups[2:], strict=True)
    ]
    assert recorder.record(launches) == expected
    assert recorder.record(launches) == expected
    assert eager == [REPLAY]


def test_launches_that_the_profiler_lost_refuse_the_recording(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one missing no one knows which, so none is mapped."""
    gpu_session(monkeypatch, [raw for n in range(5) for raw in later(100 * n, n)])
    with pytest.raises(MeasurementError) as raised:
        TorchProfilerRecorder(GPU).record(rounds(2))
    assert str(raised.value) == (
        "torch.profiler returned records of 3 launches where 4 were made; install the "
        "cuda extra to use CUPTI"
    )


# Traces that others recorded on AMD GPUs.
