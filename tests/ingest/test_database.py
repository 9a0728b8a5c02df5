import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.errors import InputError
from layerscope.ingest import database
from layerscope.ingest.content import contents_of
from layerscope.ingest.database import Database, opened, opened_content
from layerscope.ingest.database_queries import LONGEST_TEXT
from layerscope.progress import SilentProgress
from layerscope.trace import TraceLog, TraceNote
from tests.ingest.databases import database_file, numbered
from tests.ingest.packed import gzipped, written

DAMAGED = TraceNote(kind="dropped", what="tables that are damaged, read up to there")
CUT = TraceNote(
    kind="dropped", what="SQLite files that are cut or damaged, read as far as they go"
)
PAGE_BYTES = 512


@contextmanager
def read(path: Path, log: TraceLog | None = None) -> Iterator[Database]:
    """The database `path`, opened as readers do."""
    with opened(path, path.name, log or TraceLog()) as opened_database:
        yield opened_database


def numbers_file(path: Path, rows: int = 5000) -> Path:
    """A table of numbers, over many small pages."""
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("CREATE TABLE work (start, name)")
        connection.executemany(
            "INSERT INTO work VALUES (?, ?)", [(row, "gemm") for row in range(rows)]
        )
    connection.close()
    return path


class Heard(SilentProgress):
    """Adds up the steps that it is told of."""

    def __init__(self) -> None:
        self.steps = 0

    def advance(self, steps: int = 1) -> None:
        """Add them."""
        self.steps += steps


def test_columns_are_taken_by_type(tmp_path: Path) -> None:
    """Whole floats are numbers; text, blobs and missing columns are null."""
    path = database_file(
        tmp_path / "a.db",
        {
            "work": [
                {"start": 1, "name": "gemm"},
                {"start": 2.0, "name": 7},
                {"start": "3", "name": b"blob"},
                {"start": None, "name": None},
            ]
        },
    )
    with read(path) as found:
        frame = found.frame("work", ["start", "stream"], ["name", "label"])
    assert_frame_equal(
        frame,
        pl.DataFrame(
            {
                "start": [1, 2, None, None],
                "stream": [None] * 4,
                "name": ["gemm", None, None, None],
                "label": [None] * 4,
            },
            schema={
                "start": pl.Int64,
                "stream": pl.Int64,
                "name": pl.String,
                "label": pl.String,
            },
        ),
    )


def test_rows_can_be_left_out_by_value(tmp_path: Path) -> None:
    """A column decides which rows are read, unless the table lacks it."""
    rows = [{"start": 1, "type": 59}, {"start": 2, "type": 34}]
    path = database_file(tmp_path / "a.db", {"work": rows})
    with read(path) as found:
        one = found.frame("work", ["start"], only={"type": (59, 60)})
        both = found.frame("work", ["start"], only={"kind": (59, 60)})
    assert one["start"].to_list() == [1]
    assert both["start"].to_list() == [1, 2]


def test_missing_tables_have_no_rows(tmp_path: Path) -> None:
    """A table that is not there, or has none of the columns, is empty."""
    path = database_file(tmp_path / "a.db", {"work": [{"start": 1}]})
    with read(path) as found:
        assert found.frame("play", ["start"], ["name"]).is_empty()
        assert found.frame("work", ["stop"]).is_empty()
        assert found.columns("play") == frozenset()


def test_views_are_never_asked(tmp_path: Path) -> None:
    """A view that would run for ever is no table."""
    endless = (
        "CREATE VIEW work AS WITH RECURSIVE n(start) AS "
        "(SELECT 1 UNION ALL SELECT start + 1 FROM n) SELECT start FROM n"
    )
    path = database_file(tmp_path / "a.db", {"rest": [{"id": 1}]}, [endless])
    with read(path) as found:
        assert found.tables == ("rest",)
        assert found.frame("work", ["start"]).is_empty()


def test_strings_are_found_by_number(tmp_path: Path) -> None:
    """Only texts that are asked for come back; the last of equal numbers counts."""
    rows = [*numbered(["gemm", "copy", "fill"]), {"id": 1, "string": "gemm 2"}]
    path = database_file(tmp_path / "a.db", {"strings": rows})
    keys = pl.Series([3, 1, None, 1, 9], dtype=pl.Int64)
    with read(path) as found:
        texts = found.texts("strings", "string", keys)
        none = found.texts("strings", "string", keys.clear())
    assert dict(texts.iter_rows()) == {1: "gemm 2", 3: "fill"}
    assert none.is_empty()


def test_names_with_quotes_are_only_names(tmp_path: Path) -> None:
    """Whatever stands in the name of a table or column is not run."""
    table, column = 'a"; DROP TABLE b; --', 'c" + 1'
    path = tmp_path / "a.db"
    quoted = [name.replace('"', '""') for name in (table, column)]
    with sqlite3.connect(path) as connection:
        connection.execute('CREATE TABLE "{}" ("{}")'.format(*quoted))
        connection.execute('INSERT INTO "{}" VALUES (5)'.format(*quoted))  # noqa: S608
    connection.close()
    with read(path) as found:
        assert found.frame(table, [column])[column].to_list() == [5]


def test_long_and_invalid_texts_are_repaired(tmp_path: Path) -> None:
    """Texts beyond 65,536 characters are cut, bytes that are no UTF-8 replaced."""
    long = "g" * (LONGEST_TEXT + 5)
    rows = [{"name": "gemm"}, {"name": long}]
    invalid = "INSERT INTO work VALUES (CAST(x'ff67' AS TEXT))"
    path = database_file(tmp_path / "a.db", {"work": rows}, [invalid])
    log = TraceLog()
    with read(path, log) as found:
        names = found.frame("work", [], ["name"])["name"].to_list()
    assert names == ["gemm", "g" * LONGEST_TEXT, "\ufffdg"]
    assert log.notes() == (
        TraceNote(kind="repaired", what="names that are not valid UTF-8"),
        TraceNote(kind="repaired", what="names of more than 65,536 characters, cut"),
    )


def test_cut_files_give_what_is_there(tmp_path: Path) -> None:
    """Of a file that lacks its end, rows before it are read, and it is noted."""
    whole = numbers_file(tmp_path / "whole.db")
    path = written(tmp_path / "cut.db", whole.read_bytes()[: -20 * PAGE_BYTES])
    log = TraceLog()
    with read(path, log) as found:
        starts = found.frame("work", ["start"])["start"].to_list()
    assert starts == list(range(len(starts)))
    assert 1000 < len(starts) < 5000
    assert log.notes() == (CUT, DAMAGED)


def test_overwritten_pages_end_a_table(tmp_path: Path) -> None:
    """Rows before a page of garbage are read, and the damage is noted."""
    path = numbers_file(tmp_path / "a.db")
    data = bytearray(path.read_bytes())
    data[40 * PAGE_BYTES : 41 * PAGE_BYTES] = b"\xa5" * PAGE_BYTES
    path.write_bytes(data)
    log = TraceLog()
    with read(path, log) as found:
        frame = found.frame("work", ["start"])
    assert 0 < frame.height < 5000
    assert log.notes() == (DAMAGED,)


def test_pages_that_lead_back_are_no_more_rows(tmp_path: Path) -> None:
    """A table whose pages share one page has no more rows than the file can hold."""
    path = numbers_file(tmp_path / "a.db", rows=1000)
    data = bytearray(path.read_bytes())
    root, inner, leaf = 2, 3, 4
    pages = {number: (number - 1) * PAGE_BYTES for number in (root, inner, leaf)}
    assert data[pages[root]] == 5, "the root is an inner page of a table"
    data[pages[inner] : pages[inner] + PAGE_BYTES] = data[
        pages[root] : pages[root] + PAGE_BYTES
    ]
    for page, child in ((root, inner), (inner, leaf)):
        point_to(data, pages[page], child)
    path.write_bytes(data)
    log = TraceLog()
    with read(path, log) as found:
        frame = found.frame("work", ["start"])
    assert frame.height <= len(data) // 6
    assert log.notes() == (DAMAGED,)


def point_to(data: bytearray, page: int, child: int) -> None:
    """Let every pointer of an inner page lead to one child."""
    cells = int.from_bytes(data[page + 3 : page + 5], "big")
    pointer = child.to_bytes(4, "big")
    data[page + 8 : page + 12] = pointer
    for cell in range(cells):
        at = page + 12 + 2 * cell
        start = page + int.from_bytes(data[at : at + 2], "big")
        data[start : start + 4] = pointer


def test_patience_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that takes longer than its share is broken off, and that is noted."""
    monkeypatch.setattr(database, "_PATIENCE_S", -1e9)
    path = numbers_file(tmp_path / "a.db")
    log = TraceLog()
    with read(path, log) as found:
        frame = found.frame("work", ["start"])
    assert frame.height < 5000
    assert log.notes() == (DAMAGED,)


def test_nothing_is_written_beside_or_into_it(tmp_path: Path) -> None:
    """Reading leaves the file, its folder and its locks alone."""
    path = numbers_file(tmp_path / "a.db")
    before = path.read_bytes()
    tmp_path.chmod(0o500)
    try:
        with read(path) as found:
            assert found.frame("work", ["start"]).height == 5000
    finally:
        tmp_path.chmod(0o700)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_what_is_no_database_is_refused(tmp_path: Path) -> None:
    """The message names the file and says what to do."""
    path = written(tmp_path / "a.db", b"SQLite format 3\0" + b"\x01" * 600)
    with (
        pytest.raises(InputError, match=r"^a\.db is too damaged .*again$"),
        read(path),
    ):
        pytest.fail("it was opened")


def test_packed_files_are_unpacked(tmp_path: Path) -> None:
    """A gzip of a database is read like the database; its progress is told once."""
    plain = numbers_file(tmp_path / "a.db")
    packed = written(tmp_path / "a.db.gz", gzipped(plain.read_bytes()))
    for path in (plain, packed):
        heard = Heard()
        (content,) = contents_of(path)
        with opened_content(content, TraceLog(), heard) as found:
            found.expect("work")
            assert found.frame("work", ["start"]).height == 5000
        size = path.stat().st_size
        assert size - 100 <= heard.steps <= size


def test_changes_beside_the_file_are_noted(tmp_path: Path) -> None:
    """A write-ahead log that was not folded in may hold rows that are not read."""
    path = numbers_file(tmp_path / "a.db")
    written(tmp_path / "a.db-wal", b"changes")
    log = TraceLog()
    (content,) = contents_of(path)
    with opened_content(content, log, SilentProgress()) as found:
        assert found.tables == ("work",)
    assert log.notes() == (
        TraceNote(
            kind="doubted", what="changes that lie beside the file (-wal), not read"
        ),
    )
