"""Ways in which a trace is damaged, or was never one."""

import gzip
import io
import re
import sqlite3
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

Mutation: TypeAlias = Callable[[bytes, Random], bytes]

MOST_BYTES: Final = 8 << 20
"""No damaged trace is larger."""

_ONE_IN_IS_PACKED: Final = 5
_ONE_IN_IS_EVERYWHERE: Final = 10

_NUMBER: Final = re.compile(rb"-?\d+(?:\.\d+)?")
_TOKEN: Final = re.compile(rb'"[^"\\]{0,60}"|-?\d+(?:\.\d+)?|[\[\]{},:]')
_HOSTILE_NUMBERS: Final = (
    *(b"0", b"-0", b"-1", b"1e400", b"-1e400", b"1e-400", b"NaN", b"Infinity"),
    *(b"9223372036854775807", b"9223372036854775808", b"-9223372036854775809"),
    *(b"18446744073709551615", b"18446744073709551616", b"4611686018427387904"),
    *(b"0.1234567890123456789", b"1.5e300", b"9" * 5_000, b"1e5", b"00012", b"0x1F"),
)
_HOSTILE_TEXTS: Final = (
    *(b"null", b"true", b'""', b"[]", b"{}", b"[[]]", b'"\\ud800"', b'"\\u0000"'),
    *(b'"\\x"', b"\\", b'"', b"'", b"\xff\xfe", b"\xc3", b"\xed\xa0\x80", b"\0"),
    *(b"\x1b[2J", b"\n", b"\r\n", b"\x01\x02\x1f", b",,,,", b"}]}", b"//", b"\x7f"),
    *(b'"ts"', b'"dur"', b'"args"', b'"traceEvents": [', b'"ph": "X"', b"kernel"),
)
_HOSTILE_VALUES: Final = (
    *(None, 0, -1, 1 << 62, (1 << 63) - 1, -(1 << 63), 1.5, 1e300, float("inf")),
    *("", "text", "\0", "\U0001f600", "12", b"\xff\xfe", b"", "x" * 100_000),
)

_EDITS: Final = (
    *['UPDATE "{table}" SET "{column}" = ? WHERE {rows}'] * 4,
    'DROP TABLE "{table}"',
    'ALTER TABLE "{table}" DROP COLUMN "{column}"',
    'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "other"',
    'INSERT INTO "{table}" ("{column}") SELECT "{column}" FROM "{table}"',
    (
        'ALTER TABLE "{table}" RENAME TO "was"; CREATE VIEW "{table}" AS '
        "WITH RECURSIVE a(x) AS (SELECT 1 UNION ALL SELECT x FROM a) SELECT * FROM a"
    ),
)
"""Statements; a table that has become an endless view must not be asked."""


def damaged(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """`data` after a few of the mutations, some of them in or around an archive."""
    mutations = [*_MUTATIONS]
    if data.startswith(b"SQLite"):
        mutations += [_edited] * len(mutations)
    if not random.randrange(len(mutations)):
        data = _spliced(data, random.choice(others), random)
    for _ in range(random.choice((1, 1, 1, 2, 3, 6))):
        data = random.choice(mutations)(data, random)[:MOST_BYTES]
    if not random.randrange(_ONE_IN_IS_PACKED):
        data = random.choice(_PACKINGS)(data)
        if random.randrange(2):
            data = random.choice(_MUTATIONS)(data, random)[:MOST_BYTES]
    return data


def _span(data: bytes, random: Random) -> tuple[int, int]:
    """A random stretch of `data`, mostly a short one."""
    start = random.randint(0, len(data))
    length = random.choice((1, 8, 64, 512, len(data)))
    return start, min(len(data), start + random.randint(0, length))


def _truncated(data: bytes, random: Random) -> bytes:
    return data[: random.randint(0, len(data))]


def _beheaded(data: bytes, random: Random) -> bytes:
    return data[random.randint(0, len(data)) :]


def _flipped(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 4, 32)) if data else 0):
        changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _overwritten(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    filler = random.choice((b"\0", b"\xff", b"\x80", b" ", random.randbytes(1)))
    return data[:start] + filler * (end - start) + data[end:]


def _spliced(data: bytes, other: bytes, random: Random) -> bytes:
    return _truncated(data, random) + _beheaded(other, random)


def _repeated(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    times = min(random.choice((2, 2, 10, 1_000)), MOST_BYTES // (end - start + 1))
    return data[:start] + data[start:end] * times + data[end:]


def _cut_out(data: bytes, random: Random) -> bytes:
    start, end = _span(data, random)
    return data[:start] + data[end:]


def _swapped(data: bytes, random: Random) -> bytes:
    first, second, third = sorted(random.randint(0, len(data)) for _ in range(3))
    return data[:first] + data[second:third] + data[first:second] + data[third:]


def _inserted(data: bytes, random: Random) -> bytes:
    for _ in range(random.choice((1, 1, 5, 50))):
        at = random.randint(0, len(data))
        data = data[:at] + random.choice(_HOSTILE_TEXTS) + data[at:]
    return data


def _renumbered(data: bytes, random: Random) -> bytes:
    return _replaced(data, _NUMBER, _HOSTILE_NUMBERS, random)


def _retyped(data: bytes, random: Random) -> bytes:
    return _replaced(data, _TOKEN, (*_HOSTILE_TEXTS, *_HOSTILE_NUMBERS), random)


def _replaced(
    data: bytes, found: re.Pattern[bytes], by: Sequence[bytes], random: Random
) -> bytes:
    """`data` with a few of what is `found`, or with all that is equal, replaced."""
    for _ in range(random.choice((1, 1, 4, 16))):
        match = found.search(data, random.randint(0, len(data)))
        if match is None:
            continue
        new = random.choice(by)
        if not random.randrange(_ONE_IN_IS_EVERYWHERE) and len(data) < MOST_BYTES // 8:
            data = data.replace(match[0], new)[:MOST_BYTES]
        else:
            data = data[: match.start()] + new + data[match.end() :]
    return data


def _nested(data: bytes, random: Random) -> bytes:
    at = random.randint(0, len(data))
    opening = random.choice((b"[", b'{"a":', b'{"args":{"a":[', b'"\\"', b"("))
    return data[:at] + opening * random.choice((10, 1_100, 100_000)) + data[at:]


def _edited(data: bytes, random: Random) -> bytes:
    """The database `data` with valid changes that its readers may not expect."""
    with tempfile.NamedTemporaryFile() as file:
        path = Path(file.name)
        path.write_bytes(data)
        # Earlier mutations may have left nothing that SQLite still takes.
        with suppress(sqlite3.Error, UnicodeDecodeError, IndexError):
            with closing(sqlite3.connect(path)) as connection:
                connection.text_factory = bytes
                _edit(connection, random)
                connection.commit()
            return path.read_bytes()
    return data


def _edit(connection: sqlite3.Connection, random: Random) -> None:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    table = random.choice([name.decode() for (name,) in connection.execute(query)])
    info = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
    column = random.choice(info)[1].decode()
    rows = f"rowid % {random.choice((1, 1, 2, 7))} = 0"
    edit = random.choice(_EDITS).format(table=table, column=column, rows=rows)
    values = [random.choice(_HOSTILE_VALUES)] * edit.count("?")
    for statement in edit.split(";"):
        connection.execute(statement, values)


def _zip(data: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/trace", data)
        archive.writestr("b.txt", b"text")
    return packed.getvalue()


def _zstd(data: bytes) -> bytes:
    import zstandard  # noqa: PLC0415 (as the readers do)

    return zstandard.ZstdCompressor().compress(data)


_PACKINGS: Final[tuple[Callable[[bytes], bytes], ...]] = (gzip.compress, _zip, _zstd)

_MUTATIONS: Final[tuple[Mutation, ...]] = (
    *(_truncated, _beheaded, _flipped, _overwritten, _repeated, _cut_out, _swapped),
    *(_inserted, _renumbered, _retyped, _nested),
)
