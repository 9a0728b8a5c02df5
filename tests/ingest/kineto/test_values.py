from decimal import Decimal

import msgspec
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest.kineto.values import (
    integers,
    joined,
    nanoseconds,
    strings,
    texts,
    triples,
)
from layerscope.trace import TraceLog, TraceNote


def written(*values: str) -> pl.Series:
    """The column that `values` are read from."""
    return texts(joined(msgspec.Raw(each.encode()) for each in values), len(values))


@pytest.mark.parametrize(
    "values", [[], ["1"], ["", "1", ""], ["", ""], [""], ["null", '"a, b"', "[1\n]"]]
)
def test_values_stay_apart(values: list[str]) -> None:
    """Each as it was written; empty ones and JSON's null are null."""
    assert written(*values).to_list() == [
        None if each in {"", "null"} else each for each in values
    ]


def test_joined_texts_can_be_joined_again() -> None:
    """So that a chunk's values are held as one text."""
    parts = [joined([b"1", b"2"]), joined([b""]), joined([b"3"])]
    assert texts(joined(parts), 4).to_list() == ["1", "2", None, "3"]


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("5148646086525.487", 5_148_646_086_525_487),
        ("1711964646000123.457", 1_711_964_646_000_123_457),
        ("1610366662254362", 1_610_366_662_254_362_000),
        ("0.0014", 1),
        ("0.0016", 2),
        ("-3.5", -3_500),
        ("-0.001", -1),
        ("1.7e15", 1_700_000_000_000_000_000),
        ("1E-3", 1),
        ('"12.5"', 12_500),
        ("9" * 40, None),
        ("1e400", None),
        ("1e999999999", None),
        ("1e-999999999", 0),
        ("true", None),
        ("", None),
    ],
)
def test_times_are_exact(text: str, time_ns: int | None) -> None:
    """To the nanosecond, from any notation that JSON has."""
    assert nanoseconds(written(text)).to_list() == [time_ns]


@given(st.lists(st.integers(-(2**62), 2**62), min_size=1))
def test_every_nanosecond_is_read(times_ns: list[int]) -> None:
    """What Kineto writes in microseconds comes back."""
    columns = written(*(f"{Decimal(each) / 1000:f}" for each in times_ns))
    assert nanoseconds(columns).to_list() == times_ns


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-1", -1),
        ('"1890023232"', 1_890_023_232),
        ('"stream 7"', 7),
        ("7.0", 7),
        ("9223372036854775807", 2**63 - 1),
        ("10159970886766084423", 10_159_970_886_766_084_423 - 2**64),
        ("", None),
    ],
)
def test_whole_numbers_are_read(text: str, value: int | None) -> None:
    """Also within texts; unsigned ones keep their 64 bits."""
    log = TraceLog()
    assert integers(written(text), log).to_list() == [value]
    assert log.notes() == ()


def test_what_is_no_number_is_counted() -> None:
    """It becomes null, and that is said."""
    log = TraceLog()
    column = integers(written("1", "x", "9" * 30, "7.5", "[]"), log)
    assert column.to_list() == [1, None, None, None, None]
    what = "numbers of events that cannot be read"
    assert log.notes() == (TraceNote(kind="dropped", what=what, count=4),)


def test_texts_lose_their_quotes() -> None:
    """And escapes; what is no text is null."""
    assert strings(written('"a"', '"\\u00b5\\""', "5", "")).to_list() == [
        "a",
        'µ"',
        None,
        None,
    ]


def test_sizes_are_three_columns() -> None:
    """From lists, also within quotes; lists of another length are null."""
    columns = triples(written("[1, 2, 3]", '"[4, 5, 6]"', "", "[7]", "[8,9,1]"))
    assert [column.to_list() for column in columns] == [
        [1, 4, None, None, 8],
        [2, 5, None, None, 9],
        [3, 6, None, None, 1],
    ]
