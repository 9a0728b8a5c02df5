from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
import torch

from layerscope.analyze.bootstrap import Estimate
from layerscope.graphs.replay import Body, Edge, Node, Replay, Timing
from layerscope.runner import limit_times
from layerscope.runner.limit_times import Effort, Timed, fastest, times

CPU = torch.device("cpu")
FLUSH_NS = 70_000


@dataclass(eq=False)
class TimedReplay:
    """A replay that takes what its body says, beside the flush."""

    body: Body
    passes: int
    pass_ns: int
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()
    launches: int = 0
    is_closed: bool = False

    def launch(self) -> None:
        """Count."""
        self.launches += 1

    def close(self) -> None:
        """Note it."""
        self.is_closed = True


@dataclass
class Known:
    """Durations that are known already."""

    durations: list[int]

    def durations_ns(self) -> list[int]:
        """In launch order."""
        return self.durations


@dataclass
class PaperPlayer:
    """Plays passes of a fixed time by body."""

    pass_ns: dict[Body, int]
    captured: list[TimedReplay] = field(default_factory=list)
    waits: int = 0
    rounds: list[list[TimedReplay]] = field(default_factory=list)

    def capture(self, body: Body, passes: int, beside: Replay | None = None) -> Replay:
        """A fresh replay."""
        del beside
        replay = TimedReplay(body, passes, self.pass_ns[body])
        self.captured.append(replay)
        return replay

    def time(self, replays: Sequence[Replay]) -> Timing:
        """A round; a closed replay would be a mistake."""
        round_ = [each for each in replays if isinstance(each, TimedReplay)]
        assert not any(each.is_closed for each in round_)
        self.rounds.append(round_)
        return Known([FLUSH_NS + each.passes * each.pass_ns for each in round_])

    def wait(self) -> None:
        """Count."""
        self.waits += 1


def quick(passes: int) -> None:
    """Stands for a body."""
    raise AssertionError(passes)


def slow(passes: int) -> None:
    """Stands for another body."""
    raise AssertionError(passes)


def player() -> PaperPlayer:
    return PaperPlayer({quick: 2_000, slow: 9_000})


def test_times_are_slopes_over_the_lengths_of_each_body() -> None:
    """What every replay begins with cancels; lengths may differ between bodies."""
    bodies = {"quick": Timed(quick, (32, 64, 96)), "slow": Timed(slow, (8, 16, 24))}
    found = times(bodies, player(), CPU, Effort(captures=3, rounds=4))
    assert found == {
        "quick": Estimate(2_000.0, 2_000.0, 2_000.0, 12, 12.0),
        "slow": Estimate(9_000.0, 9_000.0, 9_000.0, 12, 12.0),
    }


def test_every_round_replays_everything_in_another_order() -> None:
    """Each capture is fresh, warmed before it is timed, and closed after."""
    played = player()
    bodies = {"quick": Timed(quick, (1, 2)), "slow": Timed(slow, (1, 2))}
    times(bodies, played, CPU, Effort(captures=2, rounds=3))
    assert len(played.captured) == 2 * 4
    assert all(each.is_closed and each.launches == 2 for each in played.captured)
    contents = [{id(each) for each in round_} for round_ in played.rounds]
    first, second = ({id(each) for each in played.captured[n : n + 4]} for n in (0, 4))
    assert contents == [first] * 3 + [second] * 3
    orders = {tuple(map(id, round_)) for round_ in played.rounds}
    assert len(orders) > 2


def test_what_is_noted_beside_a_capture_is_noted_while_its_replays_are_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They are warm, settled after that, timed, and open and settled until then."""
    played = player()
    seen: list[str] = []

    def state() -> str:
        now = played.captured[-2:]
        assert not any(each.is_closed for each in now)
        done = f"{now[0].launches} launches, {played.waits} waits"
        return f"{done}, {len(played.rounds)} rounds"

    @contextmanager
    def settled(*_: object) -> Iterator[None]:
        seen.append(f"settled: {state()}")
        yield
        seen.append("let go")

    monkeypatch.setattr(limit_times, "settled", settled)
    effort = Effort(
        captures=2, rounds=3, note=lambda phase: seen.append(f"{phase}: {state()}")
    )
    times({"quick": Timed(quick, (1, 2))}, played, CPU, effort)
    assert seen == [
        "settled: 2 launches, 1 waits, 0 rounds",
        "bounds: 2 launches, 1 waits, 3 rounds",
        "let go",
        "settled: 2 launches, 3 waits, 3 rounds",
        "bounds: 2 launches, 3 waits, 6 rounds",
        "let go",
    ]


def test_replays_are_closed_where_a_capture_fails() -> None:
    """What was captured before does not stay on the device."""
    played = player()
    del played.pass_ns[slow]
    bodies = {"quick": Timed(quick, (1, 2)), "slow": Timed(slow, (1, 2))}
    with pytest.raises(KeyError):
        times(bodies, played, CPU, Effort())
    assert [each.is_closed for each in played.captured] == [True, True]


def test_the_fastest_grid_counts() -> None:
    """It is looked for in one capture of all, and then timed alone, as asked."""
    played = player()
    bodies = {
        ("a", 2): Timed(slow, (1, 2)),
        ("a", 4): Timed(quick, (1, 2)),
        ("b", None): Timed(slow, (1, 2)),
    }
    found = fastest(bodies, played, CPU, Effort(captures=2, rounds=3))
    assert found == {
        "a": Estimate(2_000.0, 2_000.0, 2_000.0, 6, 6.0),
        "b": Estimate(9_000.0, 9_000.0, 9_000.0, 6, 6.0),
    }
    assert len(played.captured) == 2 * 3 + 2 * (2 * 2)
    assert [len(round_) for round_ in played.rounds] == [6] * 4 + [4] * 6
