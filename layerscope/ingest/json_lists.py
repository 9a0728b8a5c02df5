"""Finds named lists of objects in JSON of any size, and gives their objects one by one.

The text comes in chunks; only the object that is being looked at is held. What stands
around the lists is passed over, unread: damage there costs nothing.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from layerscope.trace import TraceLog

LONGEST_OBJECT: Final = 4 << 20
"""Bytes without an end of the object that they began; then it is given up."""

_DEEPEST: Final = 8  # objects in an object; those of traces have four
_MOST_FAULTS: Final = 64  # objects given up in a file, each of which takes long
_OVERLAP: Final = 4096  # enough to see the key and bracket that open a list
_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'
_GAP: Final = re.compile(rb"[\s,]*+")
_BORDER: Final = re.compile(rb'\}\s*+,\s*+(?=\{\s*+")')


def _object(deepest: int) -> re.Pattern[bytes]:
    """An object that nests others up to so deep; possessive, so never goes back."""
    pattern = rb'\{(?:[^{}"]++|%b)*+\}' % _STRING
    for _ in range(deepest):
        pattern = rb'\{(?:[^{}"]++|%b|%b)*+\}' % (_STRING, pattern)
    return re.compile(pattern, re.DOTALL)


_OBJECT: Final = _object(_DEEPEST)


class Found(NamedTuple):
    """An object of a list, the beginning of a list, or the number beside a key."""

    key: str

    text: bytes
    """The object or number; empty at the beginning of a list."""


class JsonLists:
    """Looks for the lists that stand beside some keys, and numbers beside others."""

    def __init__(
        self, lists: Iterable[str], numbers: Iterable[str], log: TraceLog
    ) -> None:
        """Nothing has been read yet; `log` is told of losses."""
        opening = b"|".join(re.escape(key.encode()) for key in lists)
        number = b"|".join(re.escape(key.encode()) for key in numbers)
        self._key = re.compile(
            rb'(?<!\\)"(?:(?P<list>%b)"\s*+:\s*+\['
            rb'|(?P<key>%b)"\s*+:\s*+(?P<number>\d{1,18}+)(?=\D))' % (opening, number)
        )
        self._log = log
        self._text = b""
        self._place = 0  # what is before it in the text has been read
        self._list: str | None = None  # in which that place is
        self._faults = 0

    def read(self, chunks: Iterable[bytes]) -> Iterator[Found]:
        """Everything of that in `chunks`, in the order of the text."""
        for chunk in chunks:
            self._text = self._text[self._place :] + chunk
            self._place = 0
            yield from self._found(is_last=False)
            if self._faults > _MOST_FAULTS:
                break
        yield from self._found(is_last=True)
        if self._faults > _MOST_FAULTS:
            self._log.add("dropped", "rests of files, which are too damaged")
        elif self._list is not None:
            what = "lists of records without an end: the file was cut"
            self._log.add("dropped", what)

    def _found(self, *, is_last: bool) -> Iterator[Found]:
        while self._faults <= _MOST_FAULTS:
            if self._list is not None:
                yield from self._objects(self._list, is_last=is_last)
                if self._list is not None:
                    return
            found = self._key.search(self._text, self._place)
            if found is None:
                self._place = max(self._place, len(self._text) - _OVERLAP)
                return
            self._place = found.end()
            if found["list"] is None:
                yield Found(found["key"].decode(), found["number"])
            else:
                self._list = found["list"].decode()
                yield Found(self._list, b"")

    def _objects(self, key: str, *, is_last: bool) -> Iterator[Found]:
        """The objects of the list that the text is in, up to its end if that is there.

        The place is then where the text is still needed from.
        """
        text, place = self._text, self._place
        while True:
            gap = _GAP.match(text, place)
            place = gap.end() if gap else place
            found = _OBJECT.match(text, place)
            if found is not None:
                place = found.end()
                yield Found(key, found[0])
            elif text.startswith(b"]", place):
                self._place, self._list = place + 1, None
                return
            elif not is_last and len(text) - place < LONGEST_OBJECT:
                self._place = place
                return
            else:
                after = self._resumed(place)
                self._place = place if after is None else after
                if after is None or self._faults > _MOST_FAULTS:
                    return
                place = after

    def _resumed(self, place: int) -> int | None:
        """Where the next object begins after a damaged one; None if nowhere here."""
        border = _BORDER.search(self._text, place)
        self._faults += 1
        if border is not None:
            self._log.add("dropped", "records that are damaged")
            return border.end()
        if len(self._text) - place >= LONGEST_OBJECT:
            self._log.add("dropped", "rests of lists that are damaged")
            self._list = None
        return None
