"""Collects events of a kind into a frame, with little memory on the way.

Values are held as the text in which they were written, until there are enough of them
for columns; a name is held once.
"""

from collections.abc import Sequence
from operator import attrgetter
from typing import Final

import polars as pl

from layerscope.ingest.columns import Names
from layerscope.ingest.kineto.events import NO_ARGS, Event
from layerscope.ingest.kineto.values import joined, texts

ROWS: Final = 1 << 15
"""Events that are held as text."""

TEXT_BYTES: Final = 1 << 25
"""Bytes of text that are held; real traces stay far below."""


class Table:
    """Rows of one kind of event, in the order in which they came."""

    def __init__(
        self, fields: Sequence[str], args: Sequence[str], names: Names
    ) -> None:
        """No rows.

        Args:
            fields: of `Event`, beside its category and name.
            args: of `Args`.
            names: numbers the names; shared between tables.
        """
        self._fields = {name: attrgetter(name) for name in fields}
        self._args = {name: attrgetter(name) for name in args}
        self._numbers = names
        self._texts: dict[str, list[bytes]] = {}
        self._names: list[str | None] = []
        self._categories: list[str | None] = []
        self._bytes = 0
        self._clear()

    def _clear(self) -> None:
        self._texts = {name: [] for name in (*self._fields, *self._args)}
        self._names, self._categories, self._bytes = [], [], 0

    def add(self, events: list[Event]) -> None:
        """Take some rows more."""
        if not events:
            return
        args = [event.args or NO_ARGS for event in events]
        for getters, rows in ((self._fields, events), (self._args, args)):
            for name, getter in getters.items():
                text = joined(map(getter, rows))
                self._texts[name].append(text)
                self._bytes += len(text)
        self._names += [event.name for event in events]
        self._categories += [event.cat for event in events]

    @property
    def is_full(self) -> bool:
        """Whether it is time for `taken`."""
        return len(self._names) >= ROWS or self._bytes >= TEXT_BYTES

    def taken(self) -> pl.DataFrame:
        """The rows since the last time, which are held no longer.

        Columns: ``name`` (number of a name) and ``category``, and one text each field.
        """
        count = len(self._names)
        columns = {
            name: texts(joined(parts), count) for name, parts in self._texts.items()
        }
        names = self._numbers.numbers(pl.Series(self._names, dtype=pl.String))
        frame = pl.DataFrame(
            {"name": names, "category": pl.Series(self._categories, dtype=pl.String)}
        ).with_columns(column.alias(name) for name, column in columns.items())
        self._clear()
        return frame
