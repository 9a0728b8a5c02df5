"""The processes of a trace, one a graph, and the tracks below them."""

from dataclasses import dataclass
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackDescriptor

from layerscope.render.perfetto.names import SEQUENCE


@dataclass(frozen=True, slots=True)
class Track:
    """One row of a picture."""

    process: int
    """The number of the process whose row it is."""

    name: str

    rank: int = 0
    """Its place among the rows of the process, for readers that take one."""

    unit: str | None = None
    """What a counter counts; None where the row has slices."""


class Tracks:
    """Numbers for processes and tracks, and the packets that describe them."""

    def __init__(self) -> None:
        """Begin without any."""
        self._processes = 0
        self._tracks: dict[Track, int] = {}
        self._unwritten = Trace()

    def process(self, name: str) -> int:
        """The number of a new process; readers show them in the order of these."""
        number = self._next()
        self._processes += 1
        described = self._describe(number)
        described.process.pid = self._processes
        described.process.process_name = name
        described.child_ordering = TrackDescriptor.EXPLICIT
        return number

    def track(self, track: Track) -> int:
        """The number of a track, which comes into being when first asked for."""
        if track not in self._tracks:
            number = self._next()
            self._tracks[track] = number
            described = self._describe(number)
            described.parent_uuid = track.process
            described.name = track.name
            described.sibling_order_rank = track.rank
            if track.unit is not None:
                described.counter.unit_name = track.unit
        return self._tracks[track]

    def take(self) -> bytes:
        """The packets of all that is new since last asked; they go before its use."""
        written = bytes(self._unwritten.SerializeToString())
        self._unwritten = Trace()
        return written

    def _next(self) -> int:
        return self._processes + len(self._tracks) + 1

    def _describe(self, number: int) -> Any:  # noqa: ANN401 (the library has no types)
        packet = self._unwritten.packet.add(trusted_packet_sequence_id=SEQUENCE)
        packet.track_descriptor.uuid = number
        return packet.track_descriptor
