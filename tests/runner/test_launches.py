from pathlib import Path

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from layerscope.errors import MeasurementError
from layerscope.graphs import calibration
from layerscope.graphs.replay import Player
from layerscope.run_header import LaunchCost
from layerscope.runner import launches
from layerscope.runner.bench import Bench
from layerscope.runner.launches import launch_cost, watched_launches
from tests.runner import fakes


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return fakes.bench(fakes.study(), tmp_path / "run", lambda *_: 1)


@pytest.fixture
def chains(monkeypatch: pytest.MonkeyPatch) -> list["Chain"]:
    """Those that are made, on a device that has kernels of our own."""
    made: list[Chain] = []

    def make(player: Player, device: torch.device) -> Chain:
        del player, device
        made.append(Chain())
        return made[-1]

    monkeypatch.setattr(launches, "has_cuda_bindings", lambda _: True)
    monkeypatch.setattr(calibration, "LaunchChain", make)
    return made


class Chain:
    """One whose kernels take longer each time it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.is_closed = False

    def kernel_times_ns(self) -> list[float]:
        """All rounds alike."""
        assert not self.is_closed
        self.asked += 1
        return [700.0 + self.asked] * 4

    def close(self) -> None:
        """Note it."""
        self.is_closed = True


def test_the_median_of_rounds_is_noted_with_its_interval() -> None:
    """One round that something disturbed changes neither much."""
    found = launch_cost("after", [720.0] * 19 + [9_000.0])
    assert found == LaunchCost(
        phase="after", kernel_ns=720.0, low_ns=720.0, high_ns=720.0
    )
    spread = launch_cost("after", [700.0, 719.0] * 10)
    assert spread.kernel_ns == 709.5
    assert 690.0 < spread.low_ns < 709.5 < spread.high_ns < 729.0


def test_one_chain_tells_the_speed_of_all_phases(
    bench: Bench, chains: list[Chain]
) -> None:
    """In the order in which they ask; its graphs are closed at the end."""
    with watched_launches(bench) as note:
        note("anchor")
        note("anchor")
        note("bounds")
    seen = [(each.phase, each.kernel_ns) for each in bench.writer.header.launch_costs]
    assert seen == [("anchor", 701.0), ("anchor", 702.0), ("bounds", 703.0)]
    assert [chain.is_closed for chain in chains] == [True]


def test_after_a_failure_the_device_is_not_asked_for_anything(
    bench: Bench, chains: list[Chain]
) -> None:
    """It may not answer, and what failed is what should be told."""
    with pytest.raises(MeasurementError), watched_launches(bench):
        raise MeasurementError
    assert [chain.is_closed for chain in chains] == [False]


def test_without_graphs_of_our_own_nothing_is_noted(bench: Bench) -> None:
    """As on a CPU."""
    with watched_launches(bench) as note:
        note("anchor")
    assert bench.writer.header.launch_costs == []
