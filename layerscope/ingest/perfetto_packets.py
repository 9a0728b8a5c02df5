"""Cuts a Perfetto trace into packets: a protobuf message that is nothing but a list.

https://perfetto.dev/docs/reference/trace-packet-proto describes them. Only one packet
is held at a time. After damage, the next place is looked for where several packets
follow each other.
"""

import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import Any, Final

from layerscope.trace import TraceLog

LONGEST_PACKET: Final = 16 << 20
"""Longer ones hold nothing of GPUs, or their length is damaged."""

_TAG: Final = 0x0A  # field 1, of a length that is told
_LENGTH_BYTES: Final = 5
_MORE: Final = 0x80  # the flag of numbers that go on in the next byte
_FOLLOWING: Final = 3  # packets in a row that are no accident
_LONGEST_FOLLOWING: Final = 1 << 16
_MOST_FAULTS: Final = 1_000
_MOST_TRIES: Final = 1_000_000  # places looked at after damage, in all
_PIECE: Final = 1 << 20
_UNKNOWN: Final = -1  # an end that the bytes at hand do not tell
_NOWHERE: Final = -2  # the end of what is no packet


class Packets:
    """Takes the chunks of one trace, and gives its packets."""

    def __init__(self, parse: Callable[[bytes], Any], log: TraceLog) -> None:
        """Nothing has been read.

        Args:
            parse: makes a packet of bytes, or None where they are none.
            log: is told of damage.
        """
        self._parse = parse
        self._log = log
        self._is_lost = False  # whether the next packet has to be looked for
        self._faults = 0
        self._tries = 0

    def read(self, chunks: Iterable[bytes]) -> Iterator[Any]:
        """What `parse` made of each packet in `chunks`."""
        text = b""
        for chunk in chunks:
            text += chunk
            text = text[(yield from self._packets(text, is_last=False)) :]
            if self._is_hopeless():
                self._log.add("dropped", "rests of files, which are too damaged")
                return
        yield from self._packets(text, is_last=True)

    def unpacked(self, deflated: bytes) -> Iterator[Any]:
        """What is in a packet of compressed packets."""
        return Packets(self._parse, self._log).read(self._inflated(deflated))

    def _inflated(self, rest: bytes) -> Iterator[bytes]:
        inflate = zlib.decompressobj()
        try:
            while rest and not inflate.eof:
                yield inflate.decompress(rest, _PIECE)
                rest = inflate.unconsumed_tail
        except zlib.error:
            self._log.add("dropped", "compressed packets that are damaged")

    def _packets(self, text: bytes, *, is_last: bool) -> Generator[Any, None, int]:
        """Gives the packets in `text`; returns where the rest of it begins."""
        place = 0
        while place < len(text):
            if self._is_lost:
                found = self._found(text, place, is_last=is_last)
                if found is None:
                    return max(place, len(text) - _FOLLOWING * _LONGEST_FOLLOWING)
                self._is_lost, place = False, found
            start, end = _frame(text, place)
            is_cut = end == _UNKNOWN or len(text) < end <= place + LONGEST_PACKET
            if is_cut and not is_last:
                return place
            packet = self._parse(text[start:end]) if start <= end <= len(text) else None
            if packet is not None:
                yield packet
                place = end
                continue
            if is_cut:
                self._log.add("dropped", "packets cut off at the end of the file")
                if len(text) - place < _LONGEST_FOLLOWING:
                    return len(text)  # a usual packet, of which the rest is missing
            else:
                self._log.add("dropped", "stretches of bytes that are no packets")
            self._is_lost, place = True, place + 1
            self._faults += 1
        return place

    def _found(self, text: bytes, place: int, *, is_last: bool) -> int | None:
        """Where the next packets are that follow each other."""
        while not self._is_hopeless():
            place = text.find(_TAG, place)
            if place < 0:
                return None
            self._tries += 1
            if _is_followed(text, place, is_last=is_last):
                return place
            place += 1
        return None

    def _is_hopeless(self) -> bool:
        return self._faults > _MOST_FAULTS or self._tries > _MOST_TRIES


def _frame(text: bytes, place: int) -> tuple[int, int]:
    """Start and end of the content of the packet at `place`.

    The end is `_NOWHERE` where there is none, and `_UNKNOWN` where more bytes are
    needed to tell.
    """
    if text[place] != _TAG:
        return place, _NOWHERE
    length = 0
    for index, byte in enumerate(text[place + 1 : place + 1 + _LENGTH_BYTES]):
        length |= (byte & ~_MORE) << (7 * index)
        if byte < _MORE:
            start = place + 2 + index
            return start, start + length
    is_whole = len(text) > place + _LENGTH_BYTES
    return place, _NOWHERE if is_whole else _UNKNOWN


def _is_followed(text: bytes, place: int, *, is_last: bool) -> bool:
    for _ in range(_FOLLOWING):
        start, end = _frame(text, place)
        if not start < end <= min(len(text), start + _LONGEST_FOLLOWING):
            return False
        field, wire_type = divmod(text[start], 8)
        if not field or wire_type not in {0, 1, 2, 5}:
            return False
        if end == len(text):
            return is_last
        place = end
    return True
