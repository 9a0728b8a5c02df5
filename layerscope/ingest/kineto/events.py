"""One event of a Chrome trace, and its decoding.

Only fields that are needed are decoded, and of these only texts: numbers stay as they
are written, so that no digit is lost and no event is refused for the type of a field.
"""

from typing import Final

import msgspec

MISSING: Final = msgspec.Raw(b"")


class Args(
    msgspec.Struct,
    gc=False,  # holds nothing that could refer back; there are millions
    rename={
        "registers": "registers per thread",
        "shared_bytes": "shared memory",
        "graph": "graph id",
        "graph_node": "graph node id",
        "collective": "Collective name",
        "group": "Process Group Name",
    },
):
    """What an event tells beside its name and time."""

    device: msgspec.Raw = MISSING
    context: msgspec.Raw = MISSING
    stream: msgspec.Raw = MISSING
    correlation: msgspec.Raw = MISSING
    registers: msgspec.Raw = MISSING
    shared_bytes: msgspec.Raw = MISSING
    grid: msgspec.Raw = MISSING
    block: msgspec.Raw = MISSING
    graph: msgspec.Raw = MISSING
    graph_node: msgspec.Raw = MISSING
    collective: msgspec.Raw = MISSING
    group: msgspec.Raw = MISSING


NO_ARGS: Final = Args()


class Event(msgspec.Struct, gc=False):
    """One event; what it lacks is empty."""

    ph: str | None = None  # "X": it has a start and a duration
    cat: str | None = None
    name: str | None = None
    pid: msgspec.Raw = MISSING
    tid: msgspec.Raw = MISSING
    ts: msgspec.Raw = MISSING
    dur: msgspec.Raw = MISSING
    args: Args | None = None


class _AnyEvent(msgspec.Struct, gc=False):
    """One event whose fields may be of any type."""

    ph: msgspec.Raw = MISSING
    cat: msgspec.Raw = MISSING
    name: msgspec.Raw = MISSING
    pid: msgspec.Raw = MISSING
    tid: msgspec.Raw = MISSING
    ts: msgspec.Raw = MISSING
    dur: msgspec.Raw = MISSING
    args: msgspec.Raw = MISSING


_EVENTS: Final = msgspec.json.Decoder(list[Event])
_EVENT: Final = msgspec.json.Decoder(Event)
_ANY_EVENT: Final = msgspec.json.Decoder(_AnyEvent)
_ARGS: Final = msgspec.json.Decoder(Args)
_TEXT: Final = msgspec.json.Decoder(str)

# Deep nesting ends in a RecursionError.
_FAULTS: Final = (msgspec.DecodeError, RecursionError)


def events_of(text: bytes | memoryview) -> list[Event] | None:
    """The events of a list without its brackets; None if any is not as it should be."""
    try:
        return _EVENTS.decode(b"".join((b"[", text, b"]")))
    except _FAULTS:
        return None


def event_of(text: bytes | memoryview) -> Event | None:
    """The event that `text` is; None if it is not as it should be."""
    try:
        return _EVENT.decode(text)
    except _FAULTS:
        return None


def loosened(text: bytes) -> Event | None:
    """The event that `text` is, without fields of a wrong type; None if not JSON."""
    try:
        found = _ANY_EVENT.decode(text)
    except _FAULTS:
        return None
    try:
        args = _ARGS.decode(found.args)
    except _FAULTS:
        args = None
    return Event(
        ph=text_of(found.ph),
        cat=text_of(found.cat),
        name=text_of(found.name),
        pid=found.pid,
        tid=found.tid,
        ts=found.ts,
        dur=found.dur,
        args=args,
    )


def text_of(value: bytes | msgspec.Raw) -> str | None:
    """The text that a value is, or None if it is none."""
    try:
        return _TEXT.decode(value)
    except _FAULTS:
        return None
