import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from torch import Tensor

from layerscope.errors import MeasurementError
from layerscope.graphs.eager import EagerPlayer
from layerscope.graphs.replay import Body, Edge, Node, Replay, Timing
from layerscope.nvml import Clocks
from layerscope.plugin import Step
from layerscope.regions import Mark, Region, observing
from layerscope.run import RunWriter
from layerscope.runner import RunnerOptions
from layerscope.runner.bench import Bench, open_bench
from layerscope.runner.body import body_of
from layerscope.runner.layer import LayerWorkload
from layerscope.study import Study
from tests import handmade
from tests.runner import fakes
from tests.runner.fakes import AGAIN

LAYER = (Region.ATTENTION, Region.O_PROJ_ALL_REDUCE, Region.MOE)


@dataclass
class Diary:
    """A step, and an observer, that write down what happens."""

    lines: list[str] = field(default_factory=list)

    def run(self, region: Region, pass_index: int) -> None:
        """Write the region and the pass."""
        self.lines.append(f"run {region} {pass_index}")

    def expert_ids(self, pass_index: int) -> Tensor | None:  # noqa: ARG002
        """No experts."""
        return None

    def touched_bytes(self, region: Region) -> int | None:  # noqa: ARG002
        """No bytes."""
        return None

    def opened(self, mark: Mark) -> None:
        """Write a plus."""
        self.lines.append(f"+ {mark.kind} {mark.name}")

    def closed(self, mark: Mark) -> None:
        """Write a minus."""
        self.lines.append(f"- {mark.kind} {mark.name}")


class NotedReplay:
    """A replay that writes down launches and its end."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()

    def __init__(self, body: Body, passes: int, lines: list[str]) -> None:
        self.body = body
        self.passes = passes
        self._lines = lines

    def launch(self) -> None:
        """Write a launch."""
        self._lines.append(f"launch {self.passes}")

    def close(self) -> None:
        """Write the end."""
        self._lines.append(f"close {self.passes}")


@dataclass
class NotedPlayer:
    """A player that writes down captures and waits."""

    lines: list[str]

    def capture(self, body: Body, passes: int, beside: Replay | None = None) -> Replay:
        """Write a capture, and the length of the replay whose memory it shares."""
        shared = f" beside {beside.passes}" if beside else ""
        self.lines.append(f"capture {passes}{shared}")
        return NotedReplay(body, passes, self.lines)

    def time(self, replays: Sequence[Replay]) -> Timing:
        """Nothing is timed here."""
        raise AssertionError(replays)

    def wait(self) -> None:
        """Write that all is done."""
        self.lines.append("wait")


def scripted(folder: Path, of: Study | None = None) -> Bench:
    """A bench whose replays are never timed."""
    return fakes.bench(of or fakes.study(), folder / "run", lambda *_: 1)


def test_a_replay_is_the_head_and_then_the_passes_region_by_region(
    tmp_path: Path,
) -> None:
    """Every part runs inside the mark of its pass and region."""
    diary = Diary()
    bench = scripted(tmp_path)
    bench.head = lambda: diary.lines.append("head")
    steps: dict[Region, Step] = dict.fromkeys(LAYER, diary)
    fakes.workload(bench).arms["fused"] = fakes.dispatched(fakes.FUSED, steps)
    with observing(diary):
        body_of(bench.workload, bench.head, "fused")(2)
    expected = ["+ region other", "head", "- region other"]
    for index in range(2):
        expected.append(f"+ pass {index}")
        for name in ("attention", "o_proj_all_reduce", "moe"):
            run = f"run {name} {index}"
            expected += [f"+ region {name}", run, f"- region {name}"]
        expected.append(f"- pass {index}")
    assert diary.lines == expected


def test_a_capture_replaces_every_replay_and_warms_the_new_ones(
    tmp_path: Path,
) -> None:
    """All arms at all lengths, each launched twice before anything is timed."""
    bench, lines = scripted(tmp_path), list[str]()
    bench.player = NotedPlayer(lines)
    bench.replays.clear()
    bench.capture()
    first = ["capture 1", "capture 2 beside 1"] * 3 + ["launch 1", "launch 2"] * 6
    assert lines == ["wait", *first, "wait"]
    assert set(bench.replays) == {
        (arm, length) for arm in ("reference", "fused", AGAIN) for length in (1, 2)
    }
    assert bench.longest("fused") is bench.replays["fused", 2]
    lines.clear()
    bench.capture()
    assert lines == ["wait", *["close 1", "close 2"] * 3, *first, "wait"]
    bench.release()
    assert bench.replays == {}


@pytest.mark.parametrize(
    ("hold", "steps"), [(1, [0, 1, 0, 1, 0, 1]), (2, [0, 0, 1, 1, 0, 0])]
)
def test_steps_are_counted_as_the_device_counts_them(
    tmp_path: Path, hold: int, steps: list[int]
) -> None:
    """Replays in a row share a step, and the steps come round again."""
    bench = scripted(tmp_path)
    for _ in range(2):
        bench.step = -1
        bench.restart(hold)
        counted, seen = [], []
        for _ in steps:
            bench.longest("fused").launch()
            seen.append(int(bench.workload.feed.step))
            counted.append(bench.next_step())
        assert seen == counted == steps


def test_a_restart_goes_on_with_the_next_step(tmp_path: Path) -> None:
    """Phases share the inputs among them, and never begin with the same one again."""
    bench = scripted(tmp_path)
    steps = []
    for hold in (1, 2, 1):
        bench.restart(hold)
        for _ in range(hold):
            bench.longest("fused").launch()
            assert bench.next_step() == int(bench.workload.feed.step)
        steps.append(bench.step)
    assert steps == [0, 1, 0]


def test_arms_are_captured_in_an_order_that_the_seed_shuffles(tmp_path: Path) -> None:
    """No arm is always the first to take memory; the same seed, the same orders."""
    orders = []
    for number in range(2):
        bench = scripted(tmp_path / str(number))
        bench.player = NotedPlayer([])
        for _ in range(8):
            bench.capture()
            orders.append(tuple(dict.fromkeys(arm for arm, _ in bench.replays)))
    assert orders[:8] == orders[8:]
    assert len({arms[0] for arms in orders}) == 3


def test_the_budget_stops_only_what_has_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the deadline never; after it once the fewest are done, and it is noted."""
    bench = scripted(tmp_path)
    bench.deadline_s = 10.0
    monkeypatch.setattr(time, "monotonic", lambda: 9.9)
    assert not bench.must_stop(5, 3)
    monkeypatch.setattr(time, "monotonic", lambda: 10.0)
    assert not bench.must_stop(2, 3)
    assert not bench.is_cut
    assert bench.must_stop(3, 3)
    assert bench.is_cut


def test_an_open_bench_plays_on_the_device_of_the_feed(tmp_path: Path) -> None:
    """On a CPU nothing is captured, and there are no clocks; the budget runs."""
    study = fakes.study()
    problem = fakes.problem(study)
    writer = RunWriter(tmp_path / "run", handmade.header(study=study))
    before_s = time.monotonic()
    options = RunnerOptions(output=tmp_path / "run", optional=frozenset({"fused"}))
    bench = open_bench(LayerWorkload(problem, {}), writer, options, 60.0)
    assert bench.optional == {"fused"}
    assert bench.arms == ["reference", "fused", AGAIN]
    assert isinstance(bench.player, EagerPlayer)
    assert bench.clocks.read() == Clocks()
    assert before_s + 60.0 <= bench.deadline_s <= time.monotonic() + 60.0
    bench.head()
    assert int(problem.feed.launches) == 1


class Unable:
    """A player that can capture nothing."""

    def capture(self, body: Body, passes: int, beside: Replay | None = None) -> Replay:
        """Refuse."""
        del body, passes, beside
        msg = "it cannot be captured into a CUDA graph: operation not permitted"
        raise MeasurementError(msg)

    def time(self, replays: Sequence[Replay]) -> Timing:
        """Nothing is timed here."""
        raise AssertionError(replays)

    def wait(self) -> None:
        """Nothing is pending."""


def test_an_arm_that_cannot_be_captured_is_named(tmp_path: Path) -> None:
    """Whoever wrote several arms must know which one it is."""
    bench = scripted(tmp_path, fakes.study(fakes.FUSED))
    bench.player = Unable()
    bench.replays.clear()
    with pytest.raises(MeasurementError) as raised:
        bench.capture()
    assert str(raised.value).removeprefix("fused (A/A)").removeprefix("fused") == (
        ": it cannot be captured into a CUDA graph: operation not permitted"
    )
