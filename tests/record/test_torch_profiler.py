from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import pytest
import torch

from layerscope.errors import MeasurementError
from layerscope.graphs.eager import EagerReplay
from layerscope.record import torch_profiler
from layerscope.record.kineto import Expected, Raw, by_order
from layerscope.record.recorder import Launch, fault, head_place, refuse_unmapped
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


@dataclass(eq=False)  # replays of it must hash
class Changing:
    """A layer that does something else on some of its launches."""

    changes: Mapping[int, Callable[[torch.Tensor], object]]
    launched: int = -1

    def __call__(self, passes: int) -> None:
        """An operator in attention; in moe another, or what `changes` says."""
        self.launched += 1
        x = torch.ones(4, 4)
        for index in range(passes):
            with layer_pass(index):
                with region(Region.ATTENTION):
                    x.add_(1)
                with region(Region.MOE):
                    self.changes.get(self.launched, torch.relu)(x)


def in_attention(x: torch.Tensor) -> None:
    """The operator of moe, in another region."""
    with region(Region.ATTENTION):
        torch.relu(x)


def test_a_cpu_replay_that_ran_something_else_is_a_fault() -> None:
    """Launches must be like the first: no operator more, fewer, or elsewhere."""
    body = Changing({
        1: lambda x: x.relu().relu(),
        2: in_attention,
        4: lambda x: None,  # noqa: ARG005 (runs nothing)
        5: torch.abs,
    })  # fmt: skip
    launches = [Launch(EagerReplay(body, 1), "reference", 0, n) for n in range(7)]
    recordings = TorchProfilerRecorder(CPU).record(launches)
    other = "other names, regions or order than expected"
    assert [fault(recorded) for recorded in recordings] == [
        None,
        "4 records where 3 were expected",
        other,
        None,
        "2 records where 3 were expected",
        other,
        None,
    ]
    refuse_unmapped(recordings)


def test_each_cpu_replay_has_a_sequence_of_its_own() -> None:
    """It holds from one block to the next, and says nothing of other replays."""
    changing = EagerReplay(Changing({1: torch.abs}), 1)
    other = EagerReplay(Changing({0: torch.abs}), 1)
    recorder = TorchProfilerRecorder(CPU)
    first = recorder.record([Launch(changing, "reference", 0, 0)])
    second = recorder.record(
        [Launch(changing, "reference", 0, 1), Launch(other, "fused", 0, 1)]
    )
    assert [fault(recorded) is None for recorded in first + second] == [
        True,
        False,
        True,
    ]


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


def test_a_lost_record_is_a_fault_of_its_own_launch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The replays around it are whole, and nothing refuses the study."""
    groups = [later(100 * launch, launch) for launch in range(6)]
    del groups[3][0]
    gpu_session(monkeypatch, [raw for group in groups for raw in group])
    recordings = TorchProfilerRecorder(GPU).record(rounds(2))
    assert [fault(recorded) for recorded in recordings] == [
        None,
        "2 records where 3 were expected",
        None,
        None,
    ]
    refuse_unmapped(recordings)


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
