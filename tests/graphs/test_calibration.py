from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from layerscope.errors import MeasurementError
from layerscope.graphs import calibration
from layerscope.graphs.edits import Change
from layerscope.graphs.replay import Body, Edge, Link, Node, Replay, Timing
from layerscope.run_header import DisabledCost
from tests.graphs.handmade_graphs import full, row

CPU = torch.device("cpu")
KERNEL_NS, RUN_NS, NODE_NS = 2000, 500, 100


@dataclass(frozen=True)
class Chain:
    """A body that only knows how many kernels it has."""

    device: torch.device
    blocks: int
    kernels: int

    def __call__(self, passes: int) -> None:
        """Never; what it takes is known."""
        raise NotImplementedError


@dataclass
class Played:
    """A replay of a chain that takes a time by its nodes."""

    body: Chain
    passes: int = 1
    disabled: tuple[int, ...] = ()
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    state: list[str] = field(default_factory=list)

    @property
    def duration_ns(self) -> int:
        """Kernels, and for every run of disabled nodes a part for it and for each."""
        on = self.body.kernels - len(self.disabled)
        runs = sum(node - 1 not in self.disabled for node in self.disabled)
        return on * KERNEL_NS + runs * RUN_NS + len(self.disabled) * NODE_NS

    def launch(self) -> None:
        """Note it."""
        self.state.append("launched")

    def close(self) -> None:
        """Note it."""
        self.state.append("closed")


@dataclass
class Edited(Played):
    """One that can be edited."""

    player: "FakePlayer | None" = None

    @property
    def links(self) -> tuple[Link, ...]:
        """A chain."""
        return full(*row(self.body.kernels))

    def variant(self, change: Change) -> Played:
        """The same chain without some nodes."""
        assert change == Change(disabled=change.disabled)
        made = Played(self.body, disabled=change.disabled)
        assert self.player is not None
        self.player.made.append(made)
        return made


@dataclass
class FakePlayer:
    """Adds noise to what replays take: one round of three is disturbed."""

    editable: bool = True
    made: list[Played] = field(default_factory=list)

    def capture(self, body: Body, passes: int, beside: Replay | None = None) -> Replay:
        """A replay of the chain."""
        assert isinstance(body, Chain)
        assert (passes, beside) == (1, None)
        made = Edited(body, player=self) if self.editable else Played(body)
        self.made.append(made)
        return made

    def time(self, replays: Sequence[Replay]) -> Timing:
        """What each takes."""
        times = []
        for place, replay in enumerate(replays):
            assert isinstance(replay, Played)
            noise_ns = 70_000 if place < 12 and place % 2 else 0
            times.append(replay.duration_ns + noise_ns)
        return Times(times)

    def wait(self) -> None:
        """Note it."""
        for each in self.made:
            each.state.append("waited")


@dataclass(frozen=True)
class Times:
    """Times that are known."""

    times_ns: list[int]

    def durations_ns(self) -> list[int]:
        """They."""
        return self.times_ns


@pytest.fixture(autouse=True)
def _chains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "SmallChain", Chain)


def test_the_cost_of_disabled_nodes_is_that_of_a_run() -> None:
    """What a run of them takes, whatever the chain around it and a disturbed round."""
    player = FakePlayer()
    assert calibration.disabled_costs(player, CPU, rounds=3) == [
        DisabledCost(nodes=nodes, cost_ns=RUN_NS + nodes * NODE_NS)
        for nodes in (1, 2, 5, 10, 20, 50)
    ]
    assert all(replay.state[-2:] == ["waited", "closed"] for replay in player.made)


def test_launches_are_settled_once_chains_are_warm_and_before_they_are_timed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of each pair the two that are timed have run, and the device is idle."""
    player = FakePlayer()
    timed: list[Sequence[Replay]] = []
    seen: list[tuple[int, int, list[list[str]]]] = []
    time = player.time

    def note(replays: Sequence[Replay]) -> Timing:
        timed.append(replays)
        return time(replays)

    monkeypatch.setattr(player, "time", note)

    @contextmanager
    def settled(*_: object) -> Iterator[None]:
        states = [[*each.state] for each in player.made]
        before = len(timed)
        yield
        seen.append((before, len(timed), states))

    monkeypatch.setattr(calibration, "settled", settled)
    calibration.disabled_costs(player, CPU, rounds=1)
    ((before, after, states),) = seen
    warm = ["launched", "launched", "launched", "waited"]
    assert (before, after) == (0, 1)
    assert states == [["waited"], warm, warm] * 6


def test_runs_of_disabled_nodes_lie_apart_within_the_chain() -> None:
    """Each as long as it is called, and no node at an end of the chain."""
    player = FakePlayer()
    calibration.disabled_costs(player, CPU, rounds=1)
    seen = [replay.disabled for replay in player.made if replay.disabled]
    assert seen[0] == tuple(range(4, 200, 10))
    assert seen[-1] == (*range(25, 75), *range(125, 175))
    assert [len(disabled) for disabled in seen] == [20, 40, 100, 100, 100, 100]


def test_without_edited_graphs_no_cost_is_measured() -> None:
    """A player through torch's own graphs cannot disable nodes."""
    player = FakePlayer(editable=False)
    with pytest.raises(MeasurementError) as caught:
        calibration.disabled_costs(player, CPU)
    assert str(caught.value) == (
        "graphs are not edited here, so no cost of disabled nodes can be measured"
    )
    assert [replay.state for replay in player.made] == [["closed"]]


@dataclass
class Rounds:
    """Plays a chain whose kernels take longer from round to round."""

    played: list[list[Replay]] = field(default_factory=list)
    made: list[Played] = field(default_factory=list)

    def capture(self, body: Body, passes: int, beside: Replay | None = None) -> Replay:
        """A replay of the chain."""
        assert isinstance(body, Chain)
        assert beside is None
        self.made.append(Played(body, passes))
        return self.made[-1]

    def time(self, replays: Sequence[Replay]) -> Timing:
        """A launch takes 5 us, and a kernel 700 ns and one more from round to round."""
        self.played.append([*replays])
        return Times(
            [
                5_000 + replay.passes * 50 * (700 + place // 2)
                for place, replay in enumerate(replays)
            ]
        )

    def wait(self) -> None:
        """Note it."""
        for each in self.made:
            each.state.append("waited")


def test_the_speed_of_launches_is_a_slope_of_warm_replays() -> None:
    """Of twenty rounds; what a launch takes, and the first three rounds, are not in it.

    No graph is made but at first: to make one is what changes the speed.
    """
    player = Rounds()
    chain = calibration.LaunchChain(player, CPU)
    assert [(each.body, each.passes) for each in player.made] == [
        (Chain(CPU, 1, 50), 1),
        (Chain(CPU, 1, 50), 3),
    ]
    expected = [700.0 + place for place in range(3, 23)]
    assert [chain.kernel_times_ns() for _ in range(2)] == [expected, expected]
    assert len(player.made) == 2
    chain.close()
    assert [each.state for each in player.made] == [["waited", "closed"]] * 2


def test_a_profiler_is_observed_on_chains_of_six_sizes() -> None:
    """From one block to sixteen on every processor of an H200."""
    chains: dict[int, object] = dict(calibration.observed_chains(CPU))
    assert list(chains) == [1, 8, 32, 132, 528, 2112]
    assert chains == {blocks: Chain(CPU, blocks, 50) for blocks in chains}
