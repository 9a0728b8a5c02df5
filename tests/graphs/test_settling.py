from dataclasses import dataclass, field

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from layerscope.errors import DeviceLostError
from layerscope.graphs import probe_kernels, settling
from layerscope.graphs.replay import Body, Edge, Node, Replay, Timing
from layerscope.regions import Mark, observing

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


@dataclass
class Kernel:
    """Notes of launches: blocks, threads, arguments, and whether it may start early."""

    launches: list[tuple[int, int, tuple[object, ...], bool]]

    def launch(
        self, grid: int, block: int, args: list[object], *, programmatic: bool
    ) -> None:
        """Note one."""
        self.launches.append((grid, block, tuple(args), programmatic))


@dataclass
class Player:
    """Makes one replay, and notes what is done with it."""

    done: list[object] = field(default_factory=list)
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    passes: int = 1

    def capture(self, body: Body, passes: int, beside: Replay | None = None) -> Replay:
        """It is its own replay."""
        assert beside is None
        self.done.append(("captured", type(body), passes))
        return self

    def body(self, passes: int) -> None:
        """Never run."""
        raise AssertionError(passes)

    def time(self, replays: object) -> Timing:
        """Nothing is timed here."""
        raise AssertionError(replays)

    def launch(self) -> None:
        """Note it."""
        self.done.append("launched")

    def wait(self) -> None:
        """Note it."""
        self.done.append("waited")

    def close(self) -> None:
        """Note it."""
        self.done.append("closed")


@pytest.fixture
def launches(
    monkeypatch: pytest.MonkeyPatch,
) -> list[tuple[int, int, tuple[object, ...], bool]]:
    """Of the kernel that triggers and waits."""
    made: list[tuple[int, int, tuple[object, ...], bool]] = []
    monkeypatch.setattr(probe_kernels, "delay_kernel", lambda _: Kernel(made))
    return made


@pytest.mark.parametrize("capability", [(9, 0), (12, 1)])
def test_a_new_graph_of_early_kernels_is_launched_and_stays_for_the_block(
    capability: tuple[int, int],
    launches: list[tuple[int, int, tuple[object, ...], bool]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is closed after it; the player launches it, and nothing else does."""
    monkeypatch.setattr(settling, "has_cuda_bindings", lambda _: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    player = Player()
    with settling.settled(player, GPU):
        player.done.append("in the block")
    assert player.done == [
        ("captured", probe_kernels.EarlyKernels, 1),
        *("launched", "waited", "in the block", "waited", "closed"),
    ]
    assert launches == []


def test_where_the_block_fails_the_device_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """To wait for one that has hung would hide the error."""
    monkeypatch.setattr(settling, "has_cuda_bindings", lambda _: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(probe_kernels, "delay_kernel", lambda _: Kernel([]))
    player = Player()
    with pytest.raises(DeviceLostError), settling.settled(player, GPU):
        raise DeviceLostError
    assert player.done[1:] == ["launched", "waited"]


def test_where_kernels_cannot_start_early_nothing_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a GPU has no programmatic edges."""
    monkeypatch.setattr(settling, "has_cuda_bindings", lambda _: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 9))
    player = Player()
    with settling.settled(player, GPU):
        player.done.append("in the block")
    assert player.done == ["in the block"]


def test_without_graphs_of_our_own_nothing_is_done() -> None:
    """A CPU has none."""
    player = Player()
    with settling.settled(player, CPU):
        player.done.append("in the block")
    assert player.done == ["in the block"]


def test_early_kernels_all_start_early_but_the_first(
    launches: list[tuple[int, int, tuple[object, ...], bool]],
) -> None:
    """They spin for no time, and every one is of a pass and of a region."""
    marks: list[str] = []

    class Observer:
        """Notes which marks open."""

        def opened(self, mark: Mark) -> None:
            """Note it, and how many kernels there were."""
            marks.append(f"{mark.kind} {mark.name} at {len(launches)}")

        def closed(self, mark: Mark) -> None:
            """Nothing."""

    with observing(Observer()):
        probe_kernels.EarlyKernels(CPU)(2)
    assert launches == [(1, 32, (0,), place > 0) for place in range(100)]
    assert marks == [
        *("pass 0 at 0", "region other at 0"),
        *("pass 1 at 50", "region other at 50"),
    ]
