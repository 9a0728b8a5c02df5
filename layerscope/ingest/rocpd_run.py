"""The tables of one run within a rocpd database, which may be of many processes.

Every table of a run ends in the run's id. Columns such as ``pid`` and ``agent_id`` hold
rows of other tables, not the numbers of the system. Schema 4 keeps in a table of tracks
what schema 3 keeps in each row, and a variant keeps times in a table of their own.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import polars as pl

from layerscope.ingest.database import Database

_TIMES: Final = ("start", "end")
_TRACK: Final = ("pid", "tid", "agent_id", "queue_id", "stream_id")


class RocpdRun:
    """One run's tables, asked by the names that they have without its id."""

    def __init__(self, database: Database, suffix: str) -> None:
        """Take the tables whose names end in `suffix`."""
        self._database = database
        self._suffix = suffix

    def table(self, name: str) -> str:
        """The whole name of the table ``rocpd_NAME``."""
        return f"rocpd_{name}{self._suffix}"

    def frame(
        self,
        name: str,
        numbers: Sequence[str],
        texts: Sequence[str] = (),
        only: Mapping[str, Sequence[int]] | None = None,
    ) -> pl.DataFrame:
        """Columns of a table, see `Database.frame`."""
        return self._database.frame(self.table(name), numbers, texts, only)

    def work(self, name: str, numbers: Sequence[str]) -> pl.DataFrame:
        """Rows that took time, with the columns that say when and where, and `numbers`.

        Returns:
            Int64 columns ``start_ns``, ``end_ns``, ``process``, ``thread``, ``context``
            (the queue), ``stream``, ``agent_id``, ``event_id`` and `numbers`.
        """
        wanted = (*_TIMES, "start_id", "end_id", "track_id", *_TRACK, "event_id")
        rows = self._tracked(self._timed(self.frame(name, [*wanted, *numbers])))
        rows = self._replaced(rows, "pid", "info_process", "pid")
        rows = self._replaced(rows, "tid", "info_thread", "tid")
        return rows.select(
            start_ns="start",
            end_ns="end",
            process="pid",
            thread="tid",
            context="queue_id",
            stream="stream_id",
            agent_id="agent_id",
            event_id="event_id",
            **{each: pl.col(each) for each in numbers},
        )

    def events(self) -> pl.DataFrame:
        """What rows are events of: ``event_id``, ``category_id`` and ``correlation``.

        The correlation is the stack id, which the launches of kernels share with them;
        the column that is called so is of the user's own ids, and mostly 0.
        """
        found = self.frame("event", ["id", "category_id", "stack_id"])
        return found.select(
            event_id="id",
            category_id="category_id",
            correlation=pl.when(pl.col("stack_id") != 0).then("stack_id"),
        ).unique("event_id", keep="first", maintain_order=True)

    def strings(self, numbers: pl.Series) -> pl.DataFrame:
        """Texts that rows refer to by number: columns ``id`` and ``text``."""
        return self._database.texts(self.table("string"), "string", numbers)

    def categories(self, numbers: pl.Series) -> pl.DataFrame:
        """Names of categories: columns ``id`` and ``text``."""
        own = self.table("info_category")
        if self._database.columns(own):
            return self._database.texts(own, "name", numbers)
        return self.strings(numbers)

    def kernel_names(self, kernels: pl.Series) -> pl.DataFrame:
        """Names of kernels, demangled where possible: columns ``id`` and ``text``."""
        table = self.table("info_kernel_symbol")
        shown, raw = (
            self._database.texts(table, column, kernels).filter(pl.col("text") != "")
            for column in ("display_name", "kernel_name")
        )
        return pl.concat([shown, raw]).unique("id", keep="first", maintain_order=True)

    def _timed(self, rows: pl.DataFrame) -> pl.DataFrame:
        table = self.table("timestamp")
        if not self._database.columns(table):
            return rows
        for each in _TIMES:
            times = self._database.frame(table, ["id", "value"])
            rows = looked_up(rows, f"{each}_id", times.rename({"value": "_time"}))
            rows = rows.with_columns(pl.coalesce(each, "_time").alias(each))
            rows = rows.drop("_time")
        return rows

    def _tracked(self, rows: pl.DataFrame) -> pl.DataFrame:
        if rows["track_id"].null_count() == rows.height:
            return rows
        tracks = self.frame("track", ["id", *_TRACK])
        named = tracks.rename({each: f"_{each}" for each in _TRACK})
        rows = looked_up(rows, "track_id", named)
        return rows.with_columns(
            pl.coalesce(each, f"_{each}").alias(each) for each in _TRACK
        ).drop(f"_{each}" for each in _TRACK)

    def _replaced(
        self, rows: pl.DataFrame, column: str, table: str, number: str
    ) -> pl.DataFrame:
        """`rows` with the system's number in place of a row of `table`."""
        found = self.frame(table, ["id", number]).rename({number: "_number"})
        rows = looked_up(rows, column, found)
        return rows.with_columns(pl.coalesce("_number", column).alias(column)).drop(
            "_number"
        )


def looked_up(rows: pl.DataFrame, key: str, found: pl.DataFrame) -> pl.DataFrame:
    """`rows`, and beside each what `found` has for the id in its column `key`.

    Args:
        rows: any frame; its order stays.
        key: an Int64 column of it.
        found: Int64 column ``id``, of which the first row of each counts, and others
            that `rows` does not have.
    """
    first = found.drop_nulls("id").unique("id", keep="first", maintain_order=True)
    return rows.join(
        first.rename({"id": key}), on=key, how="left", maintain_order="left"
    )
