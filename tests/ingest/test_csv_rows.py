import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest.csv_rows import LONGEST_LINE, csv_frames, header_names
from layerscope.trace import TraceLog
from tests.ingest.reading import counts

UNREADABLE = "lines with too many or too few fields"


def rows(text: bytes, size: int = 1 << 20) -> tuple[list[tuple[str, ...]], TraceLog]:
    """The rows in `text`, which comes in chunks of `size` bytes."""
    log = TraceLog()
    chunks = (text[at : at + size] for at in range(0, len(text), size))
    frames = list(csv_frames(chunks, log))
    return (pl.concat(frames).rows() if frames else []), log


@pytest.mark.parametrize("size", [1, 3, 1000])
def test_names_hold_commas_and_doubled_quotes(size: int) -> None:
    """What is quoted is one field, wherever chunks are cut."""
    text = b'A,"b"\r\n"f<int, 2>(""x"")",1\r\n2,3\r\n'
    found, log = rows(text, size)
    assert found == [('f<int, 2>("x")', "1"), ("2", "3")]
    assert not log.notes()


def test_columns_are_named_in_lower_case() -> None:
    """Tools and their ages differ in the case of headers, and some write a mark."""
    assert header_names(b'\xef\xbb\xbf"Kernel_Name", AGENT_ID\n1,2') == [
        "kernel_name",
        "agent_id",
    ]


@pytest.mark.parametrize("head", [b"", b"one", b"a,a\n", b"\x00\xff\n", b'"open,\n'])
def test_what_is_no_header_has_no_columns(head: bytes) -> None:
    """One column, two of one name, or bytes that are no text, are no table."""
    assert header_names(head) == []
    assert rows(head)[0] == []


def test_a_damaged_line_costs_itself() -> None:
    """Lines before and after one of too few or many fields, or an open quote, stay."""
    text = b'a,b\n1,2\n3\n"4,5\n6,7,8\n9,10\n'
    found, log = rows(text)
    assert found == [("1", "2"), ("9", "10")]
    assert counts(log.notes()) == {UNREADABLE: 3}


def test_a_line_that_is_cut_off_at_the_end_is_dropped() -> None:
    """Half a number is no number; a whole last line needs no end."""
    found, log = rows(b"a,b\n1,2\n3,4")
    assert (found, log.notes()) == ([("1", "2"), ("3", "4")], ())
    found, log = rows(b"a,b\n1,2\n345")
    assert found == [("1", "2")]
    assert counts(log.notes()) == {"lines cut off at the end of a file": 1}


def test_quoted_text_may_span_lines() -> None:
    """Messages of markers hold line feeds."""
    assert rows(b'a,b\n"one\ntwo",2\n3,4\n')[0] == [("one\ntwo", "2"), ("3", "4")]


def test_invalid_utf8_is_replaced_and_counted() -> None:
    """A character that cannot be read costs no row."""
    found, log = rows(b"a,b\nf\xff\xfe,2\n")
    assert found == [("f\ufffd\ufffd", "2")]
    assert counts(log.notes()) == {"characters that are not UTF-8, replaced": 2}


def test_an_endless_line_is_not_held() -> None:
    """What has no line feed is dropped as it comes; lines after it are read."""
    text = b"a,b\n1,2\n" + b"x" * (3 * LONGEST_LINE) + b"\n3,4\n"
    found, log = rows(text, 1 << 16)
    assert found == [("1", "2"), ("3", "4")]
    assert counts(log.notes())["lines longer than 1 MiB"] == 1


def test_blank_lines_are_nothing() -> None:
    """They are neither rows nor damage."""
    found, log = rows(b"a,b\n\n1,2\n\n\n3,4\n\n")
    assert found == [("1", "2"), ("3", "4")]
    assert not log.notes()


@given(
    st.lists(
        st.tuples(
            st.text('ab,"\n é', min_size=1, max_size=20), st.text("01", min_size=1)
        )
    ),
    st.integers(1, 40),
)
def test_what_is_written_is_read(table: list[tuple[str, str]], size: int) -> None:
    """Any quoted text comes back, except that of lines that are many."""
    lines = [f'"{name.replace(chr(34), chr(34) * 2)}",{value}' for name, value in table]
    found, log = rows("\n".join(["name,value", *lines, ""]).encode(), size)
    assert found == table
    assert not log.notes()
