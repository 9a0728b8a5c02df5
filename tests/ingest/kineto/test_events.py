import pytest

from layerscope.ingest.kineto.events import event_of, events_of, loosened, text_of

DEEP = b"[" * 100_000 + b"]" * 100_000


def test_numbers_stay_as_they_are_written() -> None:
    """No digit is lost, whatever the size, and types do not matter."""
    text = b'{"ts": 1711964646000123.457, "tid": "stream 7", "pid": 1e999}'
    event = event_of(text)
    assert event is not None
    assert bytes(event.ts) == b"1711964646000123.457"
    assert bytes(event.tid) == b'"stream 7"'
    assert bytes(event.pid) == b"1e999"


def test_a_list_is_taken_whole_or_not_at_all() -> None:
    """One event that is damaged is a reason to look at each."""
    events = events_of(b'{"name": "a"}, {"name": "b", "x": [{"name": "c"}]}')
    assert events is not None
    assert [event.name for event in events] == ["a", "b"]
    assert events_of(b'{"name": "a"}, {"name": "b') is None


@pytest.mark.parametrize("text", [b'{"name": 5}', b'{"args": []}', b'{"ph": {}}'])
def test_fields_of_other_types_are_left_out(text: bytes) -> None:
    """An event whose name is no text is an event without a name."""
    assert event_of(text) is None
    event = loosened(text)
    assert event is not None
    assert (event.name, event.ph, event.args) == (None, None, None)


def test_deep_nesting_is_no_event() -> None:
    """It ends the decoder's recursion, not the program."""
    assert event_of(b'{"x": %b}' % DEEP) is None
    assert events_of(b'{"x": %b}' % DEEP) is None
    assert loosened(b'{"ts": %b}' % DEEP) is None
    assert text_of(DEEP) is None


@pytest.mark.parametrize(("text", "value"), [(b'"a\\"b"', 'a"b'), (b"5", None)])
def test_texts_are_unescaped(text: bytes, value: str | None) -> None:
    """What is no text is None."""
    assert text_of(text) == value
