from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from layerscope.graphs.replay import Body, Edge, Node, Replay, Timing
from layerscope.record.recorder import Event, Launch, Place, Recorded
from layerscope.run_header import KernelCost
from layerscope.runner import calibration
from layerscope.runner.calibration import kernel_costs
from tests import settling
from tests.runner import fakes
from tests.runner.fakes import ScriptedTiming


@dataclass(eq=False)
class Chain:
    """A replay of so many kernels, each of so many blocks."""

    blocks: int
    kernels: int
    passes: int = 1
    edges: tuple[Edge, ...] = ()

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Kernels, all of one pass."""
        return tuple(
            Node(index, index, "kernel", 0, "other") for index in range(self.kernels)
        )

    def body(self, passes: int) -> None:
        """Never run."""

    def launch(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing is held."""


class Player:
    """Replays take 5 us to launch, and 1 us and 1 ns a block for every kernel."""

    def capture(self, body: Body, passes: int, beside: Replay | None = None) -> Replay:
        """Nothing is captured here."""
        raise AssertionError((body, passes, beside))

    def time(self, replays: Sequence[Replay]) -> Timing:
        """As the class says."""
        return ScriptedTiming([5_000 + _work_ns(one) for one in replays], lambda: None)

    def wait(self) -> None:
        """Nothing is pending."""


def _work_ns(replay: Replay) -> int:
    assert isinstance(replay, Chain)
    return replay.kernels * (1_000 + replay.blocks)


@dataclass
class Watcher:
    """A recorder that adds 100 ns to every kernel and 2 ns to each of its blocks."""

    lost: tuple[int, ...] = ()
    """Rounds of which a record is lost."""

    name: str = "paper"

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Attached."""
        yield

    def record(self, launches: Sequence[Launch]) -> list[Recorded]:
        """Kernels back to back, the first of them at 1."""
        return [self._recorded(launch) for launch in launches]

    def _recorded(self, launch: Launch) -> Recorded:
        chain = launch.replay
        assert isinstance(chain, Chain)
        each_ns = 1_000 + chain.blocks + 100 + 2 * chain.blocks
        events = [
            Event(i, "kernel", "k", 7, 1 + i * each_ns, 1 + (i + 1) * each_ns)
            for i in range(chain.kernels)
        ]
        places = {i: Place(0, "other") for i in range(chain.kernels)}
        kept = events[: -1 if launch.round in self.lost else None]
        return Recorded(launch, tuple(kept), places)


CHAINS: dict[int, tuple[Replay, Replay]] = {
    1: (Chain(1, 50), Chain(1, 150)),
    132: (Chain(132, 50), Chain(132, 150)),
}


def test_the_cost_of_a_kernel_is_what_its_chain_grows_more_by_under_the_recorder() -> (
    None
):
    """The cost of a launch is in neither; more blocks cost more."""
    assert kernel_costs(Player(), Watcher(), CHAINS) == [
        KernelCost(blocks=1, added_ns=102.0, low_ns=102.0, high_ns=102.0),
        KernelCost(blocks=132, added_ns=364.0, low_ns=364.0, high_ns=364.0),
    ]


def test_rounds_with_lost_records_are_left_out() -> None:
    """A span that lacks a kernel says nothing."""
    costs = kernel_costs(Player(), Watcher(lost=(0, 3, 19)), CHAINS)
    assert [cost.added_ns for cost in costs] == [102.0, 364.0]


def test_a_recorder_that_loses_everything_gives_no_cost() -> None:
    """Rather than one that is not a number."""
    assert kernel_costs(Player(), Watcher(lost=tuple(range(20))), CHAINS) == []


@dataclass
class Noting:
    """Plays chains, and notes what is done with them."""

    done: list[str]

    def capture(self, body: Body, passes: int, beside: Replay | None = None) -> Replay:
        """One that notes its launches."""
        assert beside is None
        self.done.append(f"{passes} passes made")
        return NotedReplay(self.done, body, passes)

    def time(self, replays: Sequence[Replay]) -> Timing:
        """Nothing is timed here."""
        raise AssertionError(replays)

    def wait(self) -> None:
        """Note it."""
        self.done.append("waited")


@dataclass
class NotedReplay:
    """A replay that notes what is done with it."""

    done: list[str]
    body: Body
    passes: int
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()

    def launch(self) -> None:
        """Note it."""
        self.done.append(f"{self.passes} launched")

    def close(self) -> None:
        """Note it."""
        self.done.append(f"{self.passes} closed")


def test_chains_are_warm_before_launches_are_settled_and_both_before_they_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device is idle in between; at the end all go."""
    pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")
    from layerscope.graphs import (  # noqa: PLC0415 (needs bindings)
        calibration as chains,
    )

    done: list[str] = []
    found = [KernelCost(blocks=1, added_ns=1.0, low_ns=1.0, high_ns=1.0)]

    def costs(*_: object) -> list[KernelCost]:
        done.append("timed")
        return found

    monkeypatch.setattr(calibration, "has_cuda_bindings", lambda _: True)
    monkeypatch.setattr(chains, "observed_chains", lambda _: {1: quick})
    monkeypatch.setattr(calibration, "settled", settling.noting(done))
    monkeypatch.setattr(calibration, "kernel_costs", costs)
    bench = fakes.bench(fakes.study(), tmp_path / "run", lambda *_: 1)
    bench.player = Noting(done)
    recorder = fakes.ScriptedRecorder(lambda launch: Recorded(launch, (), {}))
    calibration.calibrate_recorder(bench, recorder)
    assert done == [
        *("1 passes made", "3 passes made"),
        *("1 launched", "3 launched", "1 launched", "3 launched"),
        *("waited", "settled", "timed", "let go", "waited", "1 closed", "3 closed"),
    ]
    assert bench.writer.header.observer_costs == found


def quick(passes: int) -> None:
    """Stands for a chain."""
    raise AssertionError(passes)
