import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest.json_lists import LONGEST_OBJECT, Found, JsonLists
from layerscope.trace import TraceLog
from tests.ingest.reading import counts

DAMAGED = "records that are damaged"
CUT = "lists of records without an end: the file was cut"


def found(text: bytes, size: int = 1 << 20) -> tuple[list[Found], TraceLog]:
    """What is found of the lists ``a`` and ``b`` and the numbers ``n`` in `text`."""
    log = TraceLog()
    chunks = (text[at : at + size] for at in range(0, len(text), size))
    return list(JsonLists(["a", "b"], ["n"], log).read(chunks)), log


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_lists_and_numbers_come_in_the_order_of_the_text(size: int) -> None:
    """Each list begins, then gives its objects whole, wherever chunks are cut."""
    start = b'{"n": 12, "x": [{"y": "\\"a\\": ["}], '
    text = start + b'"a": [ {"k": {"v": "}{"}} ,\n{}], "b":[]}'
    items, log = found(text, size)
    assert items == [
        Found("n", b"12"),
        Found("a", b""),
        Found("a", b'{"k": {"v": "}{"}}'),
        Found("a", b"{}"),
        Found("b", b""),
    ]
    assert not log.notes()


def test_a_list_without_an_end_gives_what_is_whole() -> None:
    """A file that was cut is counted as such."""
    items, log = found(b'{"a": [{"k": 1}, {"k": 2}, {"k": ')
    assert [each.text for each in items] == [b"", b'{"k": 1}', b'{"k": 2}']
    assert counts(log.notes()) == {CUT: 1}


def test_a_list_that_was_cut_between_objects_has_no_end() -> None:
    """That nothing is missing of the last object does not make the list whole."""
    assert counts(found(b'{"a": [{"k": 1},')[1].notes()) == {CUT: 1}


def test_a_damaged_object_costs_itself() -> None:
    """An open quote reaches no further than the next object."""
    items, log = found(b'{"a": [{"k": 1}, {"k": "x}, {"k": 3}], "b": [{"k": 4}]}')
    assert [each.text for each in items] == [
        b"",
        b'{"k": 1}',
        b'{"k": 3}',
        b"",
        b'{"k": 4}',
    ]
    assert counts(log.notes()) == {DAMAGED: 1}


def test_an_object_that_never_ends_is_given_up() -> None:
    """No more than `LONGEST_OBJECT` is held for it; lists after it are found."""
    text = b'{"a": [{"k": "' + b"x" * (2 * LONGEST_OBJECT) + b'"}], "b": [{"k": 1}]}'
    items, log = found(text, 1 << 20)
    assert items[-1] == Found("b", b'{"k": 1}')
    assert counts(log.notes()) == {"rests of lists that are damaged": 1}


def test_a_file_of_damage_is_given_up() -> None:
    """Every damaged object takes long, so there is an end to them."""
    items, log = found(b'{"a": [' + b'{"k": "1},{"k": 2,' * 500)
    assert len(items) < 200
    assert "rests of files, which are too damaged" in counts(log.notes())


@given(
    st.lists(
        st.dictionaries(
            st.text(max_size=3),
            st.recursive(
                st.none() | st.integers() | st.text(max_size=5),
                lambda inner: st.dictionaries(st.text(max_size=2), inner, max_size=2),
                max_leaves=4,
            ),
            max_size=3,
        ),
        max_size=5,
    ),
    st.integers(1, 60),
    st.sampled_from([None, 1]),
)
def test_objects_come_back(objects: list[Any], size: int, indent: int | None) -> None:
    """Whatever is in the objects and however they are laid out."""
    text = json.dumps({"a": objects}, indent=indent, ensure_ascii=False).encode()
    items, log = found(text, size)
    assert [json.loads(each.text) for each in items if each.text] == objects
    assert not log.notes()
