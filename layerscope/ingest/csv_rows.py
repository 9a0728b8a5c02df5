"""CSV read in pieces, each a frame of text: what is damaged costs its line, no more."""

import csv
from collections.abc import Iterable, Iterator
from typing import Final

import polars as pl

from layerscope.ingest.content import HEAD_BYTES
from layerscope.trace import TraceLog

PIECE_BYTES: Final = 8 << 20
"""How much text becomes one frame."""

LONGEST_LINE: Final = 1 << 20
"""Longer lines are no rows of a trace."""

_WIDEST: Final = 200  # columns; tables of traces have about twenty
_QUOTE: Final = b'"'
_BOM: Final = b"\xef\xbb\xbf"
_MOST_LINES: Final = 50  # that one quoted text may span
_MOST_LOST: Final = 500_000  # lines of a table; each takes long
_TOO_LONG: Final = "lines longer than 1 MiB"
_CUT: Final = "lines cut off at the end of a file"
_UNREADABLE: Final = "lines with too many or too few fields"


def csv_frames(chunks: Iterable[bytes], log: TraceLog) -> Iterator[pl.DataFrame]:
    """The rows of a table as frames of text, one for about every `PIECE_BYTES`.

    Columns are named as in the first line, in lower case. The first frame comes even if
    the table has no rows; none comes where the first line is no header.

    Args:
        chunks: the content, in pieces of any size.
        log: is told of the lines that could not be read.
    """
    names: list[str] = []
    lost = 0
    for piece in _pieces(_whole_lines(chunks, log)):
        text = _decoded(piece, log)
        if not names:
            header, _, text = text.partition(b"\n")
            names = _header(header)
            if not names:
                return
            yield pl.DataFrame(schema=dict.fromkeys(names, pl.String))
        if text.strip():
            frame, lines = _frame(text, names, log)
            yield frame
            lost += lines
        if lost > _MOST_LOST:
            log.add("dropped", "rests of files, which are too damaged")
            return


def header_names(head: bytes) -> list[str]:
    """The names in the first line of `head`, in lower case; none if it is no header."""
    line, newline, _ = head.removeprefix(_BOM).partition(b"\n")
    if not newline and len(head) >= HEAD_BYTES:  # its end is not in sight
        return []
    return _header(line.decode("utf-8", "replace").encode())


def _header(line: bytes) -> list[str]:
    try:
        rows = list(csv.reader([line.decode().strip("\r\ufeff ")]))
    except csv.Error:
        return []
    names = [name.strip().lower() for name in rows[0]] if rows else []
    is_header = 1 < len(names) <= _WIDEST and len(set(names)) == len(names)
    return names if is_header else []


def _whole_lines(chunks: Iterable[bytes], log: TraceLog) -> Iterator[bytes]:
    """`chunks` cut at ends of lines, without lines that are too long.

    The last line has to be whole although nothing may end it: some editors leave the
    end out. It is handed out apart from the others, ended.
    """
    rest, is_skipping = b"", False
    for chunk in chunks:
        begun, newline, after = chunk.rpartition(b"\n")
        if not newline:
            rest += b"" if is_skipping else after
        else:
            if is_skipping:
                _, _, begun = begun.partition(b"\n")
                rest = b""
            yield rest + begun + b"\n"
            rest, is_skipping = after, False
        if len(rest) > LONGEST_LINE:
            log.add("dropped", _TOO_LONG)
            rest, is_skipping = b"", True
    if rest.strip():
        yield rest


def _pieces(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Whole lines in pieces of about `PIECE_BYTES`; the last may lack its end."""
    held: list[bytes] = []
    size = 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size >= PIECE_BYTES:
            yield b"".join(held)
            held, size = [], 0
    if held:
        yield b"".join(held)


def _decoded(piece: bytes, log: TraceLog) -> bytes:
    """`piece` in valid UTF-8, its lines ended by line feeds alone."""
    try:
        piece.decode()
    except UnicodeDecodeError:
        mended = piece.decode("utf-8", "replace")
        before = piece.count("\ufffd".encode())
        log.add(
            "repaired",
            "characters that are not UTF-8, replaced",
            mended.count("\ufffd") - before,
        )
        piece = mended.encode()
    return piece.replace(b"\r\n", b"\n") if b"\r" in piece else piece


def _frame(text: bytes, names: list[str], log: TraceLog) -> tuple[pl.DataFrame, int]:
    """The rows in `text`, by polars where it reads one from each line.

    Beside them how many lines gave none.
    """
    schema = pl.Schema(dict.fromkeys(names, pl.String()))
    if text.endswith(b"\n"):
        try:
            frame = pl.read_csv(
                text, has_header=False, schema=schema, raise_if_empty=False
            )
        except pl.exceptions.PolarsError:  # such as a line of too many fields
            frame = pl.DataFrame(schema=schema)
        if frame.height == text.count(b"\n"):
            written = frame.filter(~pl.all_horizontal(pl.all().is_null()))
            whole = written.filter(pl.col(names[-1]).is_not_null())
            lost = written.height - whole.height
            log.add("dropped", _UNREADABLE, lost)
            return whole, lost
    rows = list(_rows(text, len(names), log))
    lost = text.count(b"\n") - len(rows)  # at most; some may be blank
    return pl.DataFrame(rows, schema=schema, orient="row"), lost


def _rows(text: bytes, width: int, log: TraceLog) -> Iterator[list[str | None]]:
    """Row by row; a quoted text may span lines, a quote that nothing ends does not."""
    lines = text.split(b"\n")
    is_ended = not lines[-1]
    lines = lines[:-1] if is_ended else lines
    place = 0
    while place < len(lines):
        count, row = _row(lines, place, width)
        place += count
        if row is not None:
            yield row
        elif place >= len(lines) and not is_ended:
            log.add("dropped", _CUT)
        elif lines[place - 1].strip():
            log.add("dropped", _UNREADABLE)


def _row(
    lines: list[bytes], place: int, width: int
) -> tuple[int, list[str | None] | None]:
    """How many lines the row at `place` takes, and its fields, or None."""
    quotes = 0
    for count, line in enumerate(lines[place : place + _MOST_LINES], 1):
        quotes += line.count(_QUOTE)
        if quotes % 2 == 0:
            fields = _fields(b"\n".join(lines[place : place + count]), width)
            if fields is not None or count == 1:
                return count, fields
            break
    return 1, None


def _fields(line: bytes, width: int) -> list[str | None] | None:
    try:
        rows = list(csv.reader([line.decode()]))
    except csv.Error:
        return None
    if len(rows) != 1 or len(rows[0]) != width:
        return None
    return [field or None for field in rows[0]]
