"""Packets of Perfetto as rocprofv3 and others write them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

CLEARED, NEEDED = 1, 2
BEGIN, END = 1, 2
BOOTTIME = 6


class PacketFile:
    """A trace that grows packet by packet, on one sequence unless told otherwise."""

    def __init__(self, *, cleared: bool = True) -> None:
        """Begin with a packet that says that nothing was said before."""
        self.trace = Trace()
        if cleared:
            self.packet(sequence_flags=CLEARED)

    def packet(self, **fields: Any) -> Any:  # noqa: ANN401 (the library has no types)
        """A new packet."""
        return self.trace.packet.add(**{"trusted_packet_sequence_id": 1, **fields})

    def track(self, uuid: int, name: str = "", parent: int | None = None) -> None:
        """A track."""
        described = self.packet().track_descriptor
        described.uuid, described.name = uuid, name
        if parent is not None:
            described.parent_uuid = parent

    def process(self, uuid: int, pid: int) -> None:
        """The track of a process."""
        described = self.packet().track_descriptor
        described.uuid, described.process.pid = uuid, pid

    def begin(
        self,
        at: int,
        track: int,
        name: str,
        category: str,
        told: Mapping[str, Any] | None = None,
    ) -> None:
        """The beginning of a slice, with arguments."""
        packet = self.packet(timestamp=at, timestamp_clock_id=BOOTTIME)
        event = packet.track_event
        event.type, event.track_uuid, event.name = BEGIN, track, name
        event.categories.append(category)
        annotate(event.debug_annotations, told or {})

    def end(self, at: int, track: int) -> None:
        """The end of a slice."""
        packet = self.packet(timestamp=at, timestamp_clock_id=BOOTTIME)
        packet.track_event.type, packet.track_event.track_uuid = END, track

    def bytes(self) -> bytes:
        """The file."""
        return bytes(self.trace.SerializeToString())

    def write(self, folder: Path) -> Path:
        """The file, on disk."""
        path = folder / "made.pftrace"
        path.write_bytes(self.bytes())
        return path


def annotate(annotations: Any, told: Mapping[str, Any]) -> None:  # noqa: ANN401
    """Arguments: whole numbers, texts, or more of them by name."""
    for name, value in told.items():
        if isinstance(value, str):
            annotations.add(name=name, string_value=value)
        elif isinstance(value, int):
            annotations.add(name=name, uint_value=value)
        else:
            annotate(annotations.add(name=name).dict_entries, value)
