from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.render.plain import plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        ("two\nlines\r\tof\x00", "two\\nlines\\r\\tof\\x00"),
        ("\x9b31m\x85", "\\x9b31m\\x85"),
        ("back\u202ewards\u2028\ufeff", "back\\u202ewards\\u2028\\ufeff"),
        ("half \ud800, none \uffff", "half \\ud800, none \\uffff"),
        ("o-proj + all-reduce, 1\u00a0µs… 層 \\x1b", None),
    ],
)
def test_what_is_no_glyph_is_written_out(text: str, shown: str | None) -> None:
    """Controls of both sets, breaks, directions and halves; all else stays."""
    assert plain(text) == (text if shown is None else shown)


@given(st.text(st.characters(exclude_categories=())))
def test_what_is_shown_is_shown_again_as_it_is(text: str) -> None:
    """Nothing that was written out has anything left to write out."""
    shown = plain(text)
    assert plain(shown) == shown
    assert all(each.isprintable() or category(each) in ("Zs", "Co") for each in shown)
