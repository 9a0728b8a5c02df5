"""Texts that a trace holds once, and calls by a number after that."""

from typing import Any, Final

import polars as pl
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TracePacket

SEQUENCE: Final = 1
"""The one sequence of packets; numbers of texts hold within it."""

CLEARED: Final = TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
NEEDED: Final = TracePacket.SEQ_NEEDS_INCREMENTAL_STATE


class Names:
    """Numbers for texts, and the packets that say which text has which."""

    def __init__(self) -> None:
        """Begin without any; the first packet says so to readers."""
        self._events: dict[str, int] = {}
        self._categories: dict[str, int] = {}
        self._arguments: dict[str, int] = {}
        self._unwritten = Trace()
        self._unwritten.packet.add(
            trusted_packet_sequence_id=SEQUENCE, sequence_flags=CLEARED | NEEDED
        )

    def events(self, names: pl.Series) -> pl.Series:
        """The number of each name of an event, Int64."""
        known = self._events
        for name in names.unique(maintain_order=True):
            if name not in known:
                known[name] = len(known) + 1
                self._interned().event_names.add(iid=known[name], name=name)
        return names.replace_strict(known, return_dtype=pl.Int64)

    def category(self, name: str) -> int:
        """The number of a category."""
        if name not in self._categories:
            number = self._categories[name] = len(self._categories) + 1
            self._interned().event_categories.add(iid=number, name=name)
        return self._categories[name]

    def argument(self, name: str) -> int:
        """The number of an argument's name."""
        if name not in self._arguments:
            number = self._arguments[name] = len(self._arguments) + 1
            self._interned().debug_annotation_names.add(iid=number, name=name)
        return self._arguments[name]

    def take(self) -> bytes:
        """The packets of all that is new since last asked; they go before its use."""
        written: bytes = self._unwritten.SerializeToString()
        self._unwritten = Trace()
        return written

    def _interned(self) -> Any:  # noqa: ANN401 (the library has no types)
        packet = self._unwritten.packet.add(
            trusted_packet_sequence_id=SEQUENCE, sequence_flags=NEEDED
        )
        return packet.interned_data
