import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.ingest.kineto import splitting
from layerscope.ingest.kineto.splitting import Splitter
from layerscope.trace import TraceLog

CUT = "lists of events without an end: the file was cut"
LOST = "events that cannot be read"
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
NESTED = st.lists(st.dictionaries(st.sampled_from(["ph", "x"]), NAMES), max_size=3)


def chunks(text: bytes, size: int) -> Iterator[bytes]:
    """`text` in pieces."""
    for start in range(0, len(text), size):
        yield text[start : start + size]


def split(text: bytes, size: int = 64) -> tuple[list[str | None], dict[str, int]]:
    """The names of all events in `text`, and what was noted."""
    log = TraceLog()
    found = Splitter(log).events(chunks(text, size))
    names = [event.name for events in found for event in events]
    return names, {note.what: note.count for note in log.notes()}


def events(*names: str) -> list[dict[str, Any]]:
    """Events as Kineto writes them."""
    return [
        {"ph": "X", "name": name, "args": {"x": [{"ph": 1}, {"ph": 2}]}}
        for name in names
    ]


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("separators", [None, (",", ":"), (" , ", " : ")])
def test_no_layout_is_assumed(
    size: int, indent: int | None, separators: tuple[str, str] | None
) -> None:
    """Spaces, lines and where a chunk ends make no difference."""
    names = [f"kernel {index}" for index in range(20)]
    document = {"a": [{}], "traceEvents": events(*names), "z": [{"ph": "X"}]}
    text = json.dumps(document, indent=indent, separators=separators).encode()
    assert split(text, size) == (names, {})


@given(
    st.lists(st.tuples(NAMES, NESTED, st.booleans()), max_size=8),
    st.integers(1, 300),
    st.sampled_from([None, 2]),
)
def test_every_event_is_found(
    made: list[tuple[str, list[dict[str, str]], bool]], size: int, indent: int | None
) -> None:
    """Whatever is in names and arguments, and in whatever order the keys are."""
    listed = [
        {"args": nested, "name": name} if is_late else {"name": name, "args": nested}
        for name, nested, is_late in made
    ]
    document = {"x": '"traceEvents": [', "traceEvents": listed, "y": listed}
    text = json.dumps(document, indent=indent, ensure_ascii=False).encode()
    names, noted = split(text, size)
    assert names == [name for name, _, _ in made]
    assert set(noted) <= {"events with fields of an unusual type"}  # args are lists


def test_a_bare_list_is_one_of_events() -> None:
    """Also after a byte order mark."""
    text = json.dumps(events("a", "b")).encode()
    assert split(text) == (["a", "b"], {})
    assert split(b"\xef\xbb\xbf " + text) == (["a", "b"], {})


def test_several_documents_follow_each_other() -> None:
    """As Proton writes one for each stream."""
    lines = [
        json.dumps({"traceEvents": events(*names), "u": 1})
        for names in ("ab", "", "c", "de")
    ]
    assert split("\n".join(lines).encode()) == (list("abcde"), {})


def test_the_text_around_events_is_kept() -> None:
    """Up to a limit: some traces carry logs of any length."""
    splitter = Splitter(TraceLog())
    text = json.dumps({"a": 1, "traceEvents": events("a"), "b": "c"}).encode()
    assert len(list(splitter.events([text]))) == 1
    assert splitter.outside == b'{"a": 1, , "b": "c"}'
    assert splitter.lists == 1


def test_little_is_kept_of_much_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond the limit is not held."""
    monkeypatch.setattr(splitting, "LONGEST_OUTSIDE", 10)
    splitter = Splitter(TraceLog())
    text = b'{"a": "' + b"-" * 20_000 + b'", "traceEvents": []}'
    assert list(splitter.events(chunks(text, 512))) == []
    assert splitter.outside == b'{"a": "---'


@pytest.mark.parametrize("size", [64, 100_000])
def test_a_truncated_file_gives_what_is_there(size: int) -> None:
    """At any place the events before it are read, and the loss is noted."""
    listed = [{"ph": "X", "name": name, "args": {"x": [1]}} for name in "abc"]
    text = json.dumps({"traceEvents": listed}).encode()
    ends = [text.index(b"}}", text.index(b'"%c"' % name)) + 2 for name in b"abc"]
    for cut in range(len(b'{"traceEvents": ['), len(text) - 2):
        names, noted = split(text[:cut], size)
        assert names == ["a", "b", "c"][: sum(end <= cut for end in ends)]
        assert noted.pop(CUT) == 1
        assert set(noted) <= {LOST}


def test_a_damaged_event_costs_no_other() -> None:
    """It is mended where that can be, and else dropped, wherever it lies."""
    texts = [json.dumps(event).encode() for event in events(*"abcdef")]
    texts[1] = texts[1].replace(b'"b"', b'"b\xff"')
    texts[3] = texts[3].replace(b'"ph": "X"', b'"ph": X')
    texts[5] = b'{"ph": "X", "name": "f"f", "pid": 1}'
    text = b'{"traceEvents": [' + b",\n".join(texts) + b'], "b": 1}'
    for size in (50, 64, 100_000):
        assert split(text, size) == (
            ["a", "b\ufffd", "c", "e", 'f"f'],
            {
                "events with invalid UTF-8": 1,
                "events with unescaped quotes": 1,
                LOST: 1,
            },
        )


def test_garbage_between_events_is_passed_over() -> None:
    """Of spliced files the rest is read."""
    first, *others = (json.dumps(event).encode() for event in events(*"abc"))
    text = b'{"traceEvents": [' + first + b' 1"2}, ' + b", ".join(others) + b"]}"
    names, noted = split(text)
    assert names == ["a", "b", "c"]
    assert noted == {LOST: 1}


def test_a_list_that_goes_on_is_read_on() -> None:
    """Where files were joined, a bracket may lie between events."""
    text = json.dumps(events("a")) + ", " + json.dumps(events("b"))[1:]
    assert split(text.encode()) == (
        ["a", "b"],
        {"lists of events that go on after their end": 1},
    )


def test_an_event_of_any_length_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is longer than what is looked at is dropped, and those after it read."""
    monkeypatch.setattr(splitting, "LONGEST_EVENT", 400)
    long, after = events("long", "after")
    long["args"] = {"x": "-" * 2_000}
    text = json.dumps([*events("a", "b"), long, after, *events("c")]).encode()
    names, noted = split(text, 100)
    assert names[:2] == ["a", "b"]
    assert names[-1] == "c"
    assert noted.keys() == {LOST}


def test_much_text_after_the_events_is_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the list is found without waiting for the end of the file."""
    monkeypatch.setattr(splitting, "LONGEST_EVENT", 400)
    document = {"traceEvents": events("a", "b"), "log": ["-" * 50] * 100}
    assert split(json.dumps(document).encode(), 100) == (["a", "b"], {})


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"{}," * 2_000, 2_000),
        (b'{"name": "' + b'\\"' * 4_000, 0),
        (b'{"name": "x' * 500, 0),
        (b'{"a":' * 2_000, 0),
        (b"}" * 4_000, 0),
        (b"]" * 4_000, 0),
        (b'{"traceEvents": [' * 300, 0),
        (b'{"ph": "X"}],"a' * 300, 1),
        (b'{"ph": "X"}]' * 300, 300),
        (b'{"ph": "\xff"}, ' * 300, 300),
    ],
)
def test_nonsense_ends(text: bytes, count: int) -> None:
    """Whatever stands in a list, all of it is gone through, but not again and again."""
    names, _ = split(b'{"traceEvents": [' + text, 4_096)
    assert len(names) == count


def test_damage_everywhere_is_mended_everywhere() -> None:
    """What a damaged event costs does not add up until the rest is given up."""
    event = b'{"ph": "X", "cat": "cpu_op", "name": "f("%d", 1", "pid": 1, "tid": 2}'
    text = b", ".join(event % index for index in range(2_000))
    names, noted = split(b'{"traceEvents": [' + text + b"]}", 1 << 16)
    assert names == [f'f("{index}", 1' for index in range(2_000)]
    assert noted == {"events with unescaped quotes": 2_000}
