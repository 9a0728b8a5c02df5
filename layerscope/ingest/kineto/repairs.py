r"""Mends single events that are not JSON, in the ways in which profilers break them.

Unescaped quotes in names (pytorch issue 146900, Kineto before its pull requests 1459
and 1508), control characters (perfetto issue 598), escapes that JSON lacks such as
``\q``, invalid UTF-8, numbers that JSON lacks, and values or commas left over.
"""

import re
from collections.abc import Callable
from typing import Final

from layerscope.ingest.kineto.events import Event, event_of, loosened
from layerscope.trace import TraceLog

_CONTROL: Final = bytes.maketrans(bytes(range(0x20)), b" " * 0x20)
_ESCAPE: Final = re.compile(
    rb'\\(?:["\\/bfnrt]|u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    rb"|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(\\)"
)
_NUMBER: Final = re.compile(rb":\s*+[-+]?(?:nan|NaN|NAN|inf|Inf|INF)(?:inity|INITY)?+")
_NOTHING: Final = re.compile(rb":(\s*+)(?=[,}])")
_LEFT_OVER: Final = re.compile(rb",(\s*+)(?=[,}\]])")
# A text ends at a quote that the next key of its object follows, or the object's end.
_TEXT: Final = re.compile(
    rb'("(?:name|cat|Name|kernel|Call stack)"\s*+:\s*+")'
    rb'(.*?)(?<!\\)(?=",\s*+"[^"\\]{1,60}+"\s*+:|"\s*+\}\s*+(?:[,}\]]|\Z))',
    re.DOTALL,
)
_QUOTE: Final = re.compile(rb'\\.|(")', re.DOTALL)


def mended(text: bytes, log: TraceLog) -> Event | None:
    """The event that `text` was meant to be; None if it cannot be told.

    Args:
        text: from the event's opening to its closing brace.
        log: is told of what was mended.
    """
    changes: list[str] = []
    tried = b""
    for what, repair in _REPAIRS:
        changed = repair(text)
        if changed != text:
            text = changed
            changes.append(what)
        if text == tried:
            continue
        tried = text
        event = event_of(text)
        if event is None and (event := loosened(text)):
            changes.append("fields of an unusual type")
        if event is not None:
            for each in changes:
                log.add("repaired", f"events with {each}")
            return event
    return None


def _with_valid_utf8(text: bytes) -> bytes:
    return text.decode("utf-8", "replace").encode()


def _without_control_characters(text: bytes) -> bytes:
    return text.translate(_CONTROL)


def _with_known_escapes(text: bytes) -> bytes:
    if b"\\" not in text:
        return text
    return _ESCAPE.sub(lambda found: rb"\\" if found[1] else found[0], text)


def _with_known_numbers(text: bytes) -> bytes:
    return _NUMBER.sub(b": null", text)


def _without_left_overs(text: bytes) -> bytes:
    return _LEFT_OVER.sub(rb"\1", _NOTHING.sub(rb": null\1", text))


def _with_escaped_quotes(text: bytes) -> bytes:
    return _TEXT.sub(lambda found: found[1] + _escaped(found[2]), text)


def _escaped(text: bytes) -> bytes:
    return _QUOTE.sub(lambda found: rb"\"" if found[1] else found[0], text)


_REPAIRS: Final[tuple[tuple[str, Callable[[bytes], bytes]], ...]] = (
    ("invalid UTF-8", _with_valid_utf8),
    ("control characters", _without_control_characters),
    ("escapes that JSON lacks", _with_known_escapes),
    ("numbers that JSON lacks", _with_known_numbers),
    ("values missing or commas left over", _without_left_overs),
    ("unescaped quotes", _with_escaped_quotes),
)
