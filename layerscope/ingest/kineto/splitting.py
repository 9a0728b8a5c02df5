"""Cuts the text of a Chrome trace into events, whatever its layout.

The text comes in chunks. In each, the last place where one event ends and the next
begins is looked for by what such a place looks like, and the decoder confirms: what it
takes was cut right. Only text that it refuses is gone through event by event.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from layerscope.ingest.kineto.events import Event, event_of, events_of
from layerscope.ingest.kineto.repairs import mended
from layerscope.trace import TraceLog

LONGEST_EVENT: Final = 4 << 20
"""Bytes of text without the end of an event, after which it is gone through."""

LONGEST_NESTED: Final = 1 << 16
"""Bytes of an event that holds what looks like other events. A longer one without an
end is damaged, and its end is where the next seems to begin."""

LONGEST_MENDED: Final = 1 << 16
"""Bytes of a damaged event, above which mending is not tried."""

LONGEST_OUTSIDE: Final = 16 << 20
"""Bytes that are kept of the text around the events."""

_OVERLAP: Final = 4096  # enough to see the key and bracket that open a list
_MENDINGS: Final = 2  # how often all text may be mended: an event has two likely ends
_WINDOWS: Final = (1 << 12, 1 << 16)
_OPENING: Final = re.compile(rb'(?<!\\)"traceEvents"\s*+:\s*+\[')
_BARE_OPENING: Final = re.compile(rb"(?:\xef\xbb\xbf)?\s*+\[(?=\s*+[{\]])")
_SEPARATORS: Final = re.compile(rb"(?:[\s,]|\](?=\s*+,?+\s*+\{))*+")
_FIRST_KEY: Final = re.compile(rb'\{\s*+"([^"\\]{1,60}+)"\s*+:')
_BORDER: Final = re.compile(rb'\}\s*+,?+\s*+(?=\{\s*+"[^"\\]{1,60}+"\s*+:)')
_FOLLOWED: Final = re.compile(rb"\s*+(?:,\s*+\{|\]|\Z)")
_CLOSING: Final = re.compile(rb'\}\s*+\](?=\s*+(?:,\s*+"|\}))')
_BRACE: Final = re.compile(
    rb'(?:[^"{}]|"(?:[^"\\]|\\.)*+(?:"|\\?\Z))*+([{}])', re.DOTALL
)  # up to the next brace that is not within a text


@dataclass(slots=True)
class _Taken:
    """What was read from the beginning of a text inside a list of events."""

    events: list[Event]
    rest: int  # where the text begins that was not read
    is_closed: bool  # the list ended there


class Splitter:
    """Takes the chunks of one trace; gives its events, and keeps the text around."""

    def __init__(self, log: TraceLog) -> None:
        """Nothing has been read; `log` is told of repairs and losses."""
        self._log = log
        self._outside: list[bytes] = []
        self._outside_bytes = 0
        self._border: re.Pattern[bytes] | None = None
        self.lists = 0
        """Lists of events that were found."""

    @property
    def outside(self) -> bytes:
        """The text outside of the lists of events."""
        return b"".join(self._outside)

    def events(self, chunks: Iterable[bytes]) -> Iterator[list[Event]]:
        """The events of the trace, some at a time, in the order of the text."""
        buffer, is_inside = b"", False
        for chunk in chunks:
            buffer += chunk
            while True:
                if not is_inside:
                    buffer, is_inside = self._entered(buffer)
                    if not is_inside:
                        break
                taken = self._taken(buffer, is_last=False)
                buffer, is_inside = buffer[taken.rest :], not taken.is_closed
                if taken.events:
                    yield taken.events
                if is_inside:
                    break
        yield from self._ended(buffer, is_inside=is_inside)

    def _ended(self, buffer: bytes, *, is_inside: bool) -> Iterator[list[Event]]:
        while is_inside:
            taken = self._taken(buffer, is_last=True)
            if taken.events:
                yield taken.events
            if not taken.is_closed:
                what = "lists of events without an end: the file was cut"
                self._log.add("dropped", what)
                return
            buffer, is_inside = self._entered(buffer[taken.rest :])
        self._keep(buffer)

    def _entered(self, buffer: bytes) -> tuple[bytes, bool]:
        """What follows the next opening of a list, and whether there was one."""
        opening = _OPENING.search(buffer)
        if opening is None and not self.lists and not self._outside:
            opening = _BARE_OPENING.match(buffer)
        if opening is not None:
            self._keep(buffer[: opening.start()])
            self.lists += 1
            return buffer[opening.end() :], True
        kept = max(0, len(buffer) - _OVERLAP)
        if kept:
            self._keep(buffer[:kept])
        return buffer[kept:], False

    def _keep(self, text: bytes) -> None:
        room = LONGEST_OUTSIDE - self._outside_bytes
        self._outside.append(text[:room])
        self._outside_bytes += min(room, len(text))

    def _taken(self, buffer: bytes, *, is_last: bool) -> _Taken:
        if is_last:
            return self._recovered(buffer, is_last=True)
        usual = self._last_border(buffer)
        border = usual or _last(_BORDER, buffer)
        if border is None:
            if len(buffer) < LONGEST_EVENT:
                return _Taken([], 0, is_closed=False)
            return self._recovered(buffer, is_last=False)
        start = _end_of_separators(buffer, 0)
        events = events_of(memoryview(buffer)[start : border.start() + 1])
        if events is None:
            return self._recovered(buffer, is_last=False)
        if usual is None:  # from here on, events begin with another key
            self._border = _border_before(buffer, border.end())
        self._pass_separators(buffer, 0)
        return _Taken(events, border.end(), is_closed=False)

    def _last_border(self, buffer: bytes) -> re.Match[bytes] | None:
        """The last place where an event ends and one with the usual key begins."""
        if self._border is None:
            self._border = _border_before(buffer, 0)
        return self._border and _last(self._border, buffer)

    def _recovered(self, text: bytes, *, is_last: bool) -> _Taken:
        """`text` event by event: damaged ones mended, or else dropped and counted."""
        events: list[Event] = []
        scan = _Scan(text, budget=len(text), mending=_MENDINGS * len(text))
        position, border = 0, _BORDER.search(text)
        while True:
            position = self._pass_separators(text, position)
            is_closed = text.startswith(b"]", position)
            if is_closed or position == len(text):
                return _Taken(events, position + is_closed, is_closed=is_closed)
            if border is not None and border.start() < position:
                border = _BORDER.search(text, position)
            event, stop = self._whole(scan, position, border, is_last=is_last)
            if stop is None and not is_last and len(text) - position < LONGEST_EVENT:
                return _Taken(events, position, is_closed=False)
            if stop is None:
                event, stop = self._without_end(scan, position)
            if event is None:
                self._log.add("dropped", "events that cannot be read")
            else:
                events.append(event)
            position = stop

    def _whole(
        self,
        scan: "_Scan",
        position: int,
        border: re.Match[bytes] | None,
        *,
        is_last: bool,
    ) -> tuple[Event | None, int | None]:
        """The event at `position` and where it ends; None where no end is in sight."""
        text = scan.text
        if not text.startswith(b"{", position):
            return None, border.end() if border else None
        stop = border.start() + 1 if border else None
        view = memoryview(text)
        if stop is not None and (event := event_of(view[position:stop])):
            return event, stop
        end = scan.end_of_object(position, LONGEST_NESTED if border else len(text))
        if end is not None and (event := event_of(view[position:end])):
            return event, end
        if end is None and not is_last and len(text) - position < LONGEST_NESTED:
            return None, None
        # Braces within texts that are not closed mislead the scan, but not the border;
        # what looks like events within an event misleads the border, but not the scan.
        places = [end, stop] if end and _FOLLOWED.match(text, end) else [stop, end]
        ends = [each for each in places if each is not None]
        for each in ends:
            if event := self._mended(scan, position, each):
                return event, each
        return None, ends[0] if ends else None

    def _without_end(self, scan: "_Scan", position: int) -> tuple[Event | None, int]:
        """The event at `position` if the list ends after it, and where it does."""
        closing = _CLOSING.search(scan.text, position)
        if closing is None:
            return None, len(scan.text)
        end = closing.start() + 1
        return self._mended(scan, position, end), end

    def _pass_separators(self, text: bytes, position: int) -> int:
        end = _end_of_separators(text, position)
        what = "lists of events that go on after their end"
        self._log.add("repaired", what, text.count(b"]", position, end))
        return end

    def _mended(self, scan: "_Scan", start: int, end: int) -> Event | None:
        if end - start > min(LONGEST_MENDED, scan.mending):
            return None
        scan.mending -= end - start
        return mended(scan.text[start:end], self._log)


@dataclass(slots=True)
class _Scan:
    """Goes through a text bracket by bracket, but not without limit."""

    text: bytes
    budget: int  # bytes that may yet be gone through
    mending: int  # bytes that may yet be mended

    def end_of_object(self, start: int, longest: int) -> int | None:
        """Where the object ends that begins at `start`; None if that cannot be told."""
        limit = min(len(self.text), start + max(0, min(longest, self.budget)))
        depth, end = 0, start
        while found := _BRACE.match(self.text, end, limit):
            depth, end = depth + (1 if found[1] == b"{" else -1), found.end()
            if not depth:
                self.budget -= end - start
                return end
        self.budget -= limit - start
        return None


def _border_before(text: bytes, position: int) -> re.Pattern[bytes] | None:
    """What stands between events that begin as the next one does, if there is one."""
    first = _FIRST_KEY.search(text, position)
    if first is None:
        return None
    return re.compile(rb'\}\s*+,\s*+(?=\{\s*+"%b"\s*+:)' % re.escape(first[1]))


def _last(border: re.Pattern[bytes], text: bytes) -> re.Match[bytes] | None:
    """The last match, which is looked for from the end."""
    for window in (*_WINDOWS, len(text)):
        found = list(border.finditer(text, max(0, len(text) - window)))
        if found:
            return found[-1]
    return None


def _end_of_separators(text: bytes, position: int) -> int:
    found = _SEPARATORS.match(text, position)
    return found.end() if found else position
