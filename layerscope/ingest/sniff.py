"""Which format a trace is in, told by what it holds and never by its name."""

import re
from typing import Final

from layerscope.errors import InputError
from layerscope.ingest.content import HEAD_BYTES, Content
from layerscope.ingest.database_kind import sqlite_kind
from layerscope.ingest.formats import Format
from layerscope.ingest.lookalikes import (
    by_beginning,
    by_columns,
    by_keys,
    is_binary,
    otherwise,
)
from layerscope.ingest.rocprof_csv_set import Part, part_of
from layerscope.trace import TraceLog

_SQLITE: Final = b"SQLite format 3\0"
_MARK: Final = b"\xef\xbb\xbf"  # in front of UTF-8
_BLANK: Final = b" \t\r\n"
_MOST_SEARCHED_BYTES: Final = 1 << 26

_KEY: Final = re.compile(rb'"([^"\\\x00-\x1f]{1,48})"\s{0,9}:')
_JSON_START: Final = re.compile(rb'[\[{]\s*["\[{\]}]')
_PACKET: Final = b"\n"  # tag of a protobuf message's field 1, all that Perfetto writes
_PROTON: Final = re.compile(rb'"displayTimeUnit"\s*:\s*"us"')  # Kineto: "ms" or "ns"
_KINETO_KEYS: Final = frozenset(
    {
        *(b"schemaVersion", b"deviceProperties", b"computeProperties"),
        *(b"distributedInfo", b"baseTimeNanoseconds", b"displayTimeUnit"),
    }
)


def sniff(content: Content) -> Format:
    """The format of `content`.

    Raises:
        InputError: it is none that can be read; the message names what it is, as far
            as that can be told, and what to do.
    """
    head = content.head
    if not head:
        msg = f"{content.name} unpacks to nothing: it is cut, or damaged; copy it anew"
        raise InputError(msg)
    if head.startswith(_SQLITE):
        with content.on_disk(TraceLog()) as path:
            return sqlite_kind(path, content.name)
    text = head.removeprefix(_MARK).lstrip(_BLANK)
    if what := by_beginning(head):
        return _refuse(content, what)
    if head.startswith(_PACKET) and is_binary(head) and not _JSON_START.match(text):
        return Format.PERFETTO
    keys = set(_KEY.findall(text))
    has_events = bool(keys & {b"ph", b"traceEvents"})
    if what := by_keys(keys, has_events=has_events):
        return _refuse(content, what)
    return (
        _json_format(content, text, keys, has_events=has_events)
        or _table_format(content, text)
        or _refuse(content, otherwise(head, _suffix(content)))
    )


def _refuse(content: Content, what: str) -> Format:
    msg = f"{content.name} is {what}"
    raise InputError(msg)


def _suffix(content: Content) -> str:
    return "" if content.member else content.path.suffix


def _json_format(
    content: Content, text: bytes, keys: set[bytes], *, has_events: bool
) -> Format | None:
    if b"rocprofiler-sdk-tool" in keys:
        return Format.ROCPROF_JSON
    is_of_streams = has_events and b"call_stack" in keys and b"pid" not in keys
    if is_of_streams or _PROTON.search(text):
        return Format.PROTON
    if has_events or keys & _KINETO_KEYS:
        return Format.KINETO
    is_longer = text.startswith((b"{", b"[")) and len(content.head) == HEAD_BYTES
    return Format.KINETO if is_longer and _has_events_later(content) else None


def _has_events_later(content: Content) -> bool:
    """Whether events come after the head: what is said before them may be long."""
    size, before = 0, b""
    for chunk in content.chunks(TraceLog()):
        if b'"traceEvents"' in before + chunk:
            return True
        size, before = size + len(chunk), chunk[-32:]
        if size > _MOST_SEARCHED_BYTES:
            break
    return False


def _table_format(content: Content, text: bytes) -> Format | None:
    if part_of(content) is not Part.OTHER:
        return Format.ROCPROF_CSV
    header = text.partition(b"\n")[0].decode("utf-8", "replace")
    columns = {name.strip(' \t\r"').lower() for name in header.split(",")}
    if what := by_columns(columns):
        return _refuse(content, what)
    return None
