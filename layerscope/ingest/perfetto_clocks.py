"""The clocks of a Perfetto trace, on one of them.

https://perfetto.dev/docs/concepts/clock-sync: a snapshot reads several clocks at once.
"""

from typing import Any, Final

REALTIME: Final = 1
BOOTTIME: Final = 6

_OWN: Final = range(64, 128)  # clocks that each sequence of packets has for itself


class OwnClock:
    """A clock of one sequence; an incremental one tells the time since it last told."""

    def __init__(self, reading: Any, common_ns: int) -> None:  # noqa: ANN401
        """Take a reading, and what the common clock read then."""
        self._unit_ns: int = reading.unit_multiplier_ns or 1
        self._is_incremental: bool = reading.is_incremental
        self._value: int = reading.timestamp
        self._offset_ns = common_ns - self._value * self._unit_ns

    def at(self, reading: int) -> int:
        """What the common clock reads when this one reads `reading`."""
        if self._is_incremental:
            self._value += reading
            reading = self._value
        at_ns: int = reading * self._unit_ns + self._offset_ns
        return at_ns


class Clocks:
    """Tells all times on the clock that counts from the start of the machine."""

    def __init__(self) -> None:
        """Nothing is known of any clock but the common one."""
        self._offsets_ns: dict[int, int] = {BOOTTIME: 0}

    @property
    def unix_ns(self) -> int | None:
        """Unix time of the common clock's 0, if a snapshot has told."""
        offset_ns = self._offsets_ns.get(REALTIME)
        return None if offset_ns is None else -offset_ns

    def learn(self, snapshot: Any, own: dict[int, OwnClock]) -> None:  # noqa: ANN401
        """Take a snapshot; `own` are the clocks of the sequence that it is in.

        The first that tells of a clock counts, so that all events of one clock keep
        their distances to the nanosecond.
        """
        readings = {each.clock_id: each for each in snapshot.clocks}
        if BOOTTIME not in readings and snapshot.primary_trace_clock:
            self._offsets_ns.setdefault(snapshot.primary_trace_clock, 0)
        common_ns = next(
            (
                reading.timestamp + self._offsets_ns[clock]
                for clock, reading in readings.items()
                if clock in self._offsets_ns
            ),
            None,
        )
        if BOOTTIME in readings:
            common_ns = readings[BOOTTIME].timestamp
        if common_ns is None:
            return
        for clock, reading in readings.items():
            if clock in _OWN:
                own[clock] = OwnClock(reading, common_ns)
            else:
                self._offsets_ns.setdefault(clock, common_ns - reading.timestamp)

    def common_ns(self, time: int, clock: int, own: dict[int, OwnClock]) -> int | None:
        """`time` of `clock` on the common clock; None if nothing relates the two."""
        if clock in own:
            return own[clock].at(time)
        offset_ns = self._offsets_ns.get(clock)
        return None if offset_ns is None else time + offset_ns
