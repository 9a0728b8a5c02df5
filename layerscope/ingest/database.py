"""SQLite files of other tools: only read, and trusted in nothing.

Only tables are asked, never views, and only for columns that they have. Of a damaged
table the rows before the damage are taken. A file cannot make its reader wait or grow:
no table has more rows or text than its bytes can hold, and time is rationed.
"""

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Final

import polars as pl

from layerscope.errors import InputError
from layerscope.ingest.content import Content
from layerscope.ingest.database_queries import LONGEST_TEXT, quoted, select
from layerscope.progress import Progress, SilentProgress
from layerscope.trace import TraceLog

_BATCH_ROWS: Final = 1 << 14
_TABLES: Final = (
    "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 "
    "AND typeof(name) = 'text' LIMIT 10000"
)
_LARGEST_VALUE_BYTES: Final = 1 << 24
_LEAST_ROW_BYTES: Final = 6  # place, length, key and header, and no value at all
_OPERATIONS_A_LOOK: Final = 10_000  # of SQLite's machine, about 1 ms
_PATIENCE_S: Final = 20.0  # of the processor, not of the clock
_SLOWEST_BYTES_PER_S: Final = 1 << 20
_FAULTS: Final = (sqlite3.Error, UnicodeDecodeError)
"""The latter where a message of SQLite quotes what a damaged file holds."""

_CUT: Final = "SQLite files that are cut or damaged, read as far as they go"
_DAMAGED: Final = "tables that are damaged, read up to there"


class Database:
    """The tables of one SQLite file."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        size_bytes: int,
        log: TraceLog,
        progress: Progress,
    ) -> None:
        """Take a connection that nothing else uses; see `opened`."""
        self._connection = connection
        self._size_bytes = size_bytes
        self._log = log
        self._progress = progress
        self._bytes_a_row = 0.0
        self._text_left = 0
        self._deadline_s = 0.0
        connection.text_factory = self._decoded
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE_BYTES)
        connection.set_progress_handler(self._is_late, _OPERATIONS_A_LOOK)
        self._ration()
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA cell_size_check = ON")
        self.tables: tuple[str, ...] = self._tables()
        self._columns: dict[str, frozenset[str]] = {}

    def columns(self, table: str) -> frozenset[str]:
        """The columns of a table; none where the file has no such table."""
        if table not in self._columns:
            self._columns[table] = self._columns_of(table)
        return self._columns[table]

    def expect(self, *tables: str) -> None:
        """Say which tables will be read, so that progress can be told of them."""
        rows = sum(self._rows_about(table) for table in tables)
        self._bytes_a_row = self._size_bytes / rows if rows else 0.0

    def frame(
        self,
        table: str,
        numbers: Sequence[str],
        texts: Sequence[str] = (),
        only: Mapping[str, Sequence[int]] | None = None,
    ) -> pl.DataFrame:
        """Columns of a table, in the order of its rows.

        Args:
            table: its name; a table that is not there has no rows.
            numbers: columns to read as Int64. Null where the table lacks the column or
                the value is not a number; fractions are cut off.
            texts: columns to read as String, of `LONGEST_TEXT` characters at most. Null
                where the table lacks the column or the value is not text.
            only: column -> values: rows that have another value in it are left out. A
                column that the table lacks leaves out none.
        """
        schema: dict[str, pl.DataType] = {
            **dict.fromkeys(numbers, pl.Int64()),
            **dict.fromkeys(texts, pl.String()),
        }
        query = select(table, self.columns(table), numbers, texts, only or {})
        parts = [pl.DataFrame(schema=schema)]
        if query:
            parts += [
                pl.DataFrame(rows, schema=schema, orient="row")
                for rows in self._batches(query)
            ]
        frame = pl.concat(parts)
        cut = [pl.col(name).str.len_chars() >= LONGEST_TEXT for name in texts]
        if cut:
            self._note_cut(int(frame.select(pl.sum_horizontal(cut).sum()).item()))
        return frame

    def texts(
        self, table: str, column: str, keys: pl.Series, key: str = "id"
    ) -> pl.DataFrame:
        """Texts by number: of a table of strings, those that `keys` ask for.

        Args:
            table: its name, such as ``StringIds``.
            column: the one that holds the text.
            keys: Int64, whatever their order, with repeats and nulls.
            key: the column that holds the number.

        Returns:
            Columns ``id`` (Int64, unique) and ``text`` (String, not null).
        """
        wanted = set(keys.unique().drop_nulls())
        found: dict[int, str] = {}
        query = select(table, self.columns(table), [key], [column], {})
        if query and wanted:
            for rows in self._batches(query):
                found |= {
                    number: text
                    for number, text in rows
                    if text is not None and number in wanted
                }
        self._note_cut(sum(len(text) >= LONGEST_TEXT for text in found.values()))
        return pl.DataFrame(
            {"id": list(found), "text": list(found.values())},
            schema={"id": pl.Int64, "text": pl.String},
        )

    def pairs(self, table: str, key: str, value: str) -> dict[str, str]:
        """A small table of two text columns, such as metadata; later rows win."""
        frame = self.frame(table, [], [key, value]).drop_nulls()
        return dict(zip(frame[key], frame[value], strict=True))

    def _tables(self) -> tuple[str, ...]:
        try:
            rows = self._connection.execute(_TABLES).fetchall()
        except _FAULTS:
            # So SQLite reads what is there of a file that is shorter than it should be,
            # or whose list of tables is damaged in places.
            self._connection.execute("PRAGMA writable_schema = ON")
            rows = self._connection.execute(_TABLES).fetchall()
            self._log.add("dropped", _CUT)
        return tuple(name for (name,) in rows)

    def _columns_of(self, table: str) -> frozenset[str]:
        if table not in self.tables:
            return frozenset()
        self._ration()
        try:
            rows = self._connection.execute(f"PRAGMA table_info({quoted(table)})")
            return frozenset(row[1] for row in rows)
        except _FAULTS:
            self._log.add("dropped", _DAMAGED)
            return frozenset()

    def _rows_about(self, table: str) -> int:
        if not self.columns(table):
            return 0
        self._ration()
        try:
            query = f"SELECT max(rowid) FROM {quoted(table)}"  # noqa: S608 (quoted)
            (last,) = self._connection.execute(query).fetchone()
        except _FAULTS:
            return 0
        return min(last, self._size_bytes) if isinstance(last, int) and last > 0 else 0

    def _batches(self, query: str) -> Iterator[list[tuple[Any, ...]]]:
        self._ration()
        left = self._size_bytes // _LEAST_ROW_BYTES
        rows: list[tuple[Any, ...]] = []
        try:
            for row in self._connection.execute(query):
                rows.append(row)
                if len(rows) == _BATCH_ROWS:
                    left -= len(rows)
                    if left < 0:
                        break
                    self._progress.advance(int(len(rows) * self._bytes_a_row))
                    yield rows
                    rows = []
        except _FAULTS:
            self._log.add("dropped", _DAMAGED)
        if left < len(rows):
            # Pages that lead back to themselves hold rows without end.
            self._log.add("dropped", _DAMAGED)
            rows = []
        self._progress.advance(int(len(rows) * self._bytes_a_row))
        yield rows

    def _ration(self) -> None:
        """Give the next query its share of text and time."""
        self._text_left = 2 * self._size_bytes + LONGEST_TEXT
        allowed_s = _PATIENCE_S + self._size_bytes / _SLOWEST_BYTES_PER_S
        self._deadline_s = time.thread_time() + allowed_s

    def _is_late(self) -> bool:
        return time.thread_time() > self._deadline_s

    def _decoded(self, data: bytes) -> str:
        self._text_left -= len(data)
        if self._text_left < 0:
            msg = "more text than the file has bytes"
            raise sqlite3.DataError(msg)
        try:
            return data.decode()
        except UnicodeDecodeError:
            self._log.add("repaired", "names that are not valid UTF-8")
            return data.decode(errors="replace")

    def _note_cut(self, count: int) -> None:
        self._log.add("repaired", "names of more than 65,536 characters, cut", count)


@contextmanager
def opened(
    path: Path, name: str, log: TraceLog, progress: Progress | None = None
) -> Iterator[Database]:
    """The SQLite file `path`, which stays as it is, for as long as the block runs.

    Args:
        path: a plain file.
        name: what messages call it.
        log: is told of damage.
        progress: is told of the bytes that have been read.

    Raises:
        InputError: it is no database, or too damaged to tell its tables.
    """
    # Nothing that belongs to the file's own program is looked at or left behind: no
    # lock, no journal.
    uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
    size_bytes = path.stat().st_size
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            yield Database(connection, size_bytes, log, progress or SilentProgress())
    except _FAULTS as error:
        msg = f"{name} is too damaged to be read as an SQLite file; export it again"
        raise InputError(msg) from error


@contextmanager
def opened_content(
    content: Content, log: TraceLog, progress: Progress
) -> Iterator[Database]:
    """The SQLite file that `content` is, unpacked where it is packed; see `opened`."""
    with content.on_disk(log, progress) as path:
        is_itself = path == content.path
        beside = path.with_name(f"{path.name}-wal")
        if is_itself and beside.is_file() and beside.stat().st_size:
            log.add("doubted", "changes that lie beside the file (-wal), not read")
        told = progress if is_itself else SilentProgress()  # of its bytes, once
        with opened(path, content.name, log, told) as database:
            yield database
