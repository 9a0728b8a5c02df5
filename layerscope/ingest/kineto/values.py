"""Columns of numbers and texts from values as JSON writes them.

Times are decimal microseconds. As floating-point numbers they would lose nanoseconds
(in Unix time, 0.25 µs is the next step), so all their digits are taken.
"""

import re
from collections.abc import Callable, Iterable
from decimal import Decimal, InvalidOperation
from typing import Final

import msgspec
import polars as pl

from layerscope.ingest.kineto.events import text_of
from layerscope.trace import TraceLog

_BETWEEN: Final = "\x1e"  # JSON has no such character, except escaped
_SEPARATOR: Final = _BETWEEN.encode()
_MICROSECONDS: Final = pl.Decimal(35, 3)  # a thousand times that fits 38 digits
_LARGEST: Final = 1 << 63
_LONGEST_EXPONENT: Final = 20  # such microseconds are no time; and int() would hang
_NUMBER: Final = re.compile(r'"?(?:stream )?(-?[0-9]{1,20})(?:\.0*)?"?')
_SIZES: Final = re.compile("[0-9]{1,18}")
_DIMENSIONS: Final = 3


def joined(values: Iterable[bytes | msgspec.Raw]) -> bytes:
    """`values`, or what was joined before, as one text for `texts`."""
    return _SEPARATOR.join(values)


def texts(text: bytes, count: int) -> pl.Series:
    """The `count` values that were joined, as written; null where one is empty."""
    if len(text) < max(1, count):  # nothing but what stands between them
        return pl.Series([None], dtype=pl.String).new_from_index(0, count)
    column = pl.Series([text.decode("utf-8", "replace")], dtype=pl.String)
    parts = column.str.split(_BETWEEN).explode()
    has_empty = text.startswith(_SEPARATOR) or text.endswith(_SEPARATOR)
    if has_empty or _SEPARATOR * 2 in text or b"null" in text:
        return parts.set(parts.is_in(["", "null"]), None)
    return parts


def nanoseconds(written: pl.Series) -> pl.Series:
    """Decimal microseconds as Int64 nanoseconds, rounded to the nearest; or null."""
    numbers = written.cast(_MICROSECONDS, strict=False) * 1000
    return _completed(numbers.cast(pl.Int64, strict=False), written, _time_of)


def integers(written: pl.Series, log: TraceLog) -> pl.Series:
    """Whole numbers, also within quotes, as Int64; null where there is none.

    Those of 64 bits keep their bits, and so stay apart from others, as negative ones.
    """
    numbers = _completed(written.cast(pl.Int64, strict=False), written, _integer_of)
    log.add(
        "dropped",
        "numbers of events that cannot be read",
        numbers.null_count() - written.null_count(),
    )
    return numbers


def strings(written: pl.Series) -> pl.Series:
    """Texts without their quotes and escapes; null where there is none."""
    nothing = pl.Series([None], dtype=pl.String).new_from_index(0, written.len())
    return _completed(nothing, written, lambda text: text_of(text.encode()))


def triples(written: pl.Series) -> tuple[pl.Series, pl.Series, pl.Series]:
    """Lists of three sizes, also within quotes, as three Int64 columns."""
    known = written.unique().drop_nulls()
    sizes = [_sizes_of(text) for text in known.to_list()]
    x, y, z = (
        written.replace_strict(
            known,
            pl.Series([each[dimension] for each in sizes], dtype=pl.Int64),
            default=None,
            return_dtype=pl.Int64,
        )
        for dimension in range(_DIMENSIONS)
    )
    return x, y, z


def _completed(
    column: pl.Series, written: pl.Series, value_of: Callable[[str], int | str | None]
) -> pl.Series:
    """`column` with `value_of` what is written where it has none."""
    is_open = column.is_null() & written.is_not_null()
    if not is_open.any():
        return column
    known = written.filter(is_open).unique()
    values = pl.Series([value_of(text) for text in known.to_list()], dtype=column.dtype)
    found = written.replace_strict(
        known, values, default=None, return_dtype=column.dtype
    )
    return column.zip_with(~is_open, found)


def _time_of(text: str) -> int | None:
    try:
        microseconds = Decimal(text.strip('"'))
    except InvalidOperation:
        return None
    if not microseconds.is_finite() or microseconds.adjusted() > _LONGEST_EXPONENT:
        return None
    value = round(microseconds * 1000)
    return value if abs(value) < _LARGEST else None


def _integer_of(text: str) -> int | None:
    found = _NUMBER.fullmatch(text)
    value = int(found[1]) if found else None
    if value is None or not -_LARGEST <= value < 2 * _LARGEST:
        return None
    return value if value < _LARGEST else value - 2 * _LARGEST


def _sizes_of(text: str) -> tuple[int, int, int] | tuple[None, None, None]:
    match [int(size) for size in _SIZES.findall(text)]:
        case [x, y, z]:
            return x, y, z
        case _:
            return None, None, None
