import time

import pytest

from layerscope.graphs.eager import EagerPlayer


class Clock:
    """A monotonic clock that bodies move."""

    now_ns = 1_000_000

    def read(self) -> int:
        """The time now."""
        return self.now_ns

    def body(self, passes: int) -> None:
        """Take 7 ns, and 100 ns a pass."""
        self.now_ns += 7 + 100 * passes


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(time, "perf_counter_ns", fake.read)
    return fake


def test_a_captured_body_has_run_once_and_knows_its_passes(clock: Clock) -> None:
    """Capturing warms; there is no graph, so there are no nodes."""
    replay = EagerPlayer().capture(clock.body, 3)
    assert clock.now_ns == 1_000_307
    assert (replay.passes, replay.nodes, replay.edges) == (3, (), ())
    assert replay.body == clock.body


def test_launching_runs_all_passes_and_closing_holds_nothing(clock: Clock) -> None:
    """Closed or not, a replay can be launched: it is only a function."""
    replay = EagerPlayer().capture(clock.body, 3)
    replay.launch()
    replay.close()
    replay.launch()
    assert clock.now_ns == 1_000_000 + 3 * 307


def test_every_replay_is_timed_for_itself_in_order(clock: Clock) -> None:
    """Durations are whole nanoseconds; what came before is in none of them."""
    player = EagerPlayer()
    short, long = player.capture(clock.body, 1), player.capture(clock.body, 4)
    timing = player.time([long, short, long])
    player.wait()
    assert timing.durations_ns() == [407, 107, 407]
    assert timing.durations_ns() == [407, 107, 407]


def test_no_replays_have_no_times() -> None:
    """An empty round is a round."""
    assert EagerPlayer().time([]).durations_ns() == []
