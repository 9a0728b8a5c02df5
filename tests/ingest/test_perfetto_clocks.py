from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import ClockSnapshot

from layerscope.ingest.perfetto_clocks import Clocks, OwnClock

REALTIME, MONOTONIC, BOOTTIME, OWN = 1, 3, 6, 64


def snapshot(readings: dict[int, int], **own: Any) -> ClockSnapshot:  # noqa: ANN401
    """Clocks read at once; `own` is what is said of the clock of a sequence."""
    made = ClockSnapshot()
    for clock, reading in readings.items():
        more = own if clock == OWN else {}
        made.clocks.add(clock_id=clock, timestamp=reading, **more)
    return made


def test_all_clocks_are_told_on_the_common_one() -> None:
    """Distances are those of the first snapshot that has both clocks."""
    clocks, own = Clocks(), dict[int, OwnClock]()
    clocks.learn(snapshot({BOOTTIME: 1000, MONOTONIC: 400, REALTIME: 9000}), own)
    clocks.learn(snapshot({BOOTTIME: 2000, MONOTONIC: 1399}), own)
    assert clocks.common_ns(50, BOOTTIME, own) == 50
    assert clocks.common_ns(400, MONOTONIC, own) == 1000
    assert clocks.unix_ns == 8000


def test_an_incremental_clock_adds_up() -> None:
    """Each packet tells the time since the one before, in the clock's unit."""
    clocks, own = Clocks(), dict[int, OwnClock]()
    taken = snapshot({BOOTTIME: 5000, OWN: 7}, is_incremental=1, unit_multiplier_ns=10)
    clocks.learn(taken, own)
    assert [clocks.common_ns(step, OWN, own) for step in (0, 3, 2)] == [
        *(5000, 5030),
        5050,
    ]


def test_a_clock_of_a_sequence_is_unknown_to_others() -> None:
    """Each sequence has its own clocks of these numbers."""
    clocks, own = Clocks(), dict[int, OwnClock]()
    clocks.learn(snapshot({BOOTTIME: 5000, OWN: 4000}), own)
    assert clocks.common_ns(4100, OWN, own) == 5100
    assert clocks.common_ns(4100, OWN, {}) is None


def test_an_unknown_clock_has_no_time() -> None:
    """Nothing relates it to others, until a snapshot does."""
    clocks, own = Clocks(), dict[int, OwnClock]()
    assert (clocks.common_ns(5, MONOTONIC, own), clocks.unix_ns) == (None, None)
    clocks.learn(snapshot({MONOTONIC: 10, OWN: 3}), own)
    assert clocks.common_ns(5, MONOTONIC, own) is None


def test_clocks_may_be_related_through_others() -> None:
    """A snapshot without the common clock may hold one that is known."""
    clocks, own = Clocks(), dict[int, OwnClock]()
    clocks.learn(snapshot({BOOTTIME: 1000, MONOTONIC: 400}), own)
    clocks.learn(snapshot({MONOTONIC: 500, REALTIME: 9100}), own)
    assert clocks.unix_ns == 8000


def test_the_primary_clock_stands_for_a_missing_common_one() -> None:
    """Then all times count from its 0."""
    clocks, own = Clocks(), dict[int, OwnClock]()
    taken = snapshot({MONOTONIC: 400, REALTIME: 9000})
    taken.primary_trace_clock = MONOTONIC
    clocks.learn(taken, own)
    assert (clocks.common_ns(5, MONOTONIC, own), clocks.unix_ns) == (5, 8600)
