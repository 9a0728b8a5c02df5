from collections.abc import Sequence
from typing import Any, cast

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from layerscope.graphs.replay import Replay
from layerscope.selftest import balancing
from layerscope.selftest.balancing import missing_ns, spinning
from layerscope.selftest.cases import Launch
from tests import settling

ARM = (
    Launch(region="attention", role="first"),
    Launch(region="moe", role="tail", spin_ns=100),
    Launch(region="moe", role="tail", spin_ns=100),
)


@pytest.mark.parametrize(
    ("faster_ns", "spin_ns"),
    [(1_000.0, 600), (-50.0, 75), (0.0, 100), (-900.0, 1), (9e9, 1_000_000)],
)
def test_spinning_kernels_share_what_is_missing(faster_ns: float, spin_ns: int) -> None:
    """Half each of two; never less than something or more than they may."""
    assert missing_ns(ARM, faster_ns) == spin_ns


def test_only_those_spin_that_did() -> None:
    """The others stay as they are."""
    assert [launch.spin_ns for launch in spinning(ARM, 600)] == [0, 600, 600]


def test_arms_are_balanced_at_the_speed_of_launches_of_a_study(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Warm and settled, as all that is timed; the first of a round does not count."""
    done: list[str] = []

    class Player:
        """Notes what is done."""

        def wait(self) -> None:
            """Note it."""
            done.append("waited")

        def time(self, replays: Sequence[Replay]) -> "Player":
            """Note it."""
            done.append(f"{len(replays)} timed")
            return self

        def durations_ns(self) -> list[int]:
            """Known."""
            return [9, 1, 2]

    class Played:
        """Notes its launches."""

        def launch(self) -> None:
            """Note it."""
            done.append("launched")

    monkeypatch.setattr(balancing, "settled", settling.noting(done))
    rounds = balancing._rounds(
        cast("Any", Player()),
        torch.device("cpu"),
        cast("Any", [Played(), Played()]),
    )
    assert rounds == [[1, 2]] * 24
    assert done[:7] == ["waited", *["launched"] * 4, "waited", "settled"]
    assert done[7:] == ["3 timed"] * 24 + ["let go"]
