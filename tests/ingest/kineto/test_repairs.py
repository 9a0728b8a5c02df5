import pytest

from layerscope.ingest.kineto.repairs import mended
from layerscope.trace import TraceLog, TraceNote


@pytest.mark.parametrize(
    ("text", "name", "what"),
    [
        (b'{"name": "a\xff"}', "a\ufffd", "invalid UTF-8"),
        (b'{"name": "a\x01\nb"}', "a  b", "control characters"),
        (b'{"name": "a\\q\\\\"}', "a\\q\\", "escapes that JSON lacks"),
        (b'{"name": "\\u12"}', "\\u12", "escapes that JSON lacks"),
        (b'{"name": "\\ud800"}', "\\ud800", "escapes that JSON lacks"),
        (b'{"name": "a", "x": NaN, "y": -inf}', "a", "numbers that JSON lacks"),
        (b'{"name": "a", "x": ,}', "a", "values missing or commas left over"),
        (
            b'{"name": "f("x", \'y\')", "pid": 1, "cat": "op"}',
            "f(\"x\", 'y')",
            "unescaped quotes",
        ),
        (b'{"pid": 1, "name": "{"a": "b"}"}', '{"a": "b"}', "unescaped quotes"),
        (b'{"name": "a", "args": 5}', "a", "fields of an unusual type"),
    ],
)
def test_damage_is_mended(text: bytes, name: str, what: str) -> None:
    """Each kind by itself, and only what was wrong is noted."""
    log = TraceLog()
    event = mended(text, log)
    assert event is not None
    assert event.name == name
    assert log.notes() == (TraceNote(kind="repaired", what=f"events with {what}"),)


def test_several_kinds_of_damage_are_mended_at_once() -> None:
    """And counted apart."""
    log = TraceLog()
    event = mended(b'{"name": "\xff"\x02\\w", "ts": nan}', log)
    assert event is not None
    assert event.name == '\ufffd" \\w'
    assert [note.what.removeprefix("events with ") for note in log.notes()] == [
        "invalid UTF-8",
        "control characters",
        "escapes that JSON lacks",
        "numbers that JSON lacks",
        "unescaped quotes",
    ]


@pytest.mark.parametrize("text", [b"", b"{", b'{"name": "a', b'{"a" 5}', b"[1]"])
def test_what_cannot_be_told_is_no_event(text: bytes) -> None:
    """Nothing is invented, and nothing noted as mended."""
    log = TraceLog()
    assert mended(text, log) is None
    assert log.notes() == ()
