"""A small reader of the traces that layerscope writes: slices, counters and flows."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, TypeAlias

import polars as pl
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from layerscope.schema import KERNELS

_Texts: TypeAlias = dict[str, dict[int, str]]


@dataclass(slots=True)
class Slice:
    """One span of time on a track."""

    process: str
    track: str
    category: str
    name: str
    start_ns: int
    depth: int
    arguments: dict[str, Any]
    flows: tuple[int, ...]
    end_ns: int = -1


@dataclass(slots=True)
class Read:
    """What a trace holds."""

    processes: list[str] = field(default_factory=list)
    slices: list[Slice] = field(default_factory=list)
    counters: dict[tuple[str, str], list[tuple[int, int]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """Time and value of each event, by process and track."""

    def of(self, category: str) -> list[Slice]:
        """The slices of a category, by start."""
        return [each for each in self.slices if each.category == category]

    def rows(self, category: str, *columns: str) -> list[tuple[Any, ...]]:
        """Fields of these slices, or of their arguments."""
        return [
            tuple(
                getattr(each, name) if hasattr(each, name) else each.arguments.get(name)
                for name in columns
            )
            for each in self.of(category)
        ]


def read(written: bytes) -> Read:
    """What `written` says to a reader that sorts by time and keeps ties in order."""
    found = Read()
    tracks: dict[int, tuple[str, str]] = {}
    texts: _Texts = defaultdict(dict)
    events = []
    for packet in Trace.FromString(written).packet:
        for kind, entries in packet.interned_data.ListFields():
            texts[kind.name] |= {entry.iid: entry.name for entry in entries}
        described = packet.track_descriptor
        if described.HasField("process"):
            tracks[described.uuid] = (described.process.process_name, "")
            found.processes.append(described.process.process_name)
        elif packet.HasField("track_descriptor"):
            tracks[described.uuid] = (tracks[described.parent_uuid][0], described.name)
        elif packet.HasField("track_event"):
            place = tracks[packet.track_event.track_uuid]
            events.append((packet.timestamp, place, packet.track_event))
    _play(sorted(events, key=itemgetter(0)), texts, found)
    return found


def _play(
    events: list[tuple[int, tuple[str, str], Any]], texts: _Texts, found: Read
) -> None:
    """Open and end slices as events say; all must have ended at last."""
    open_slices: dict[tuple[str, str], list[Slice]] = defaultdict(list)
    for at_ns, place, event in events:
        stack = open_slices[place]
        if event.type == TrackEvent.TYPE_COUNTER:
            found.counters[place].append((at_ns, event.counter_value))
        elif event.type == TrackEvent.TYPE_SLICE_END:
            stack.pop().end_ns = at_ns
        else:
            made = _slice(place, at_ns, event, texts)
            made.depth = len(stack)
            stack.append(made)
            found.slices.append(made)
    assert not any(open_slices.values())


def kernels_of(found: Read) -> pl.DataFrame:
    """`schema.KERNELS` of a trace of whole replays, in the order of a run on disk."""
    rows = [dict(_kernel(each)) for each in found.of("kernel")]
    frame = pl.DataFrame(rows, schema={**KERNELS, "at_ns": pl.Int64()})
    replay = ("arm", "experiment", "capture", "round", "replay")
    first, at = pl.col("at_ns").min(), pl.col("at_ns")
    return (
        frame.with_columns(at_ns=at - first.over(replay))
        .with_columns(pass_start_ns=first.over(*replay, "pass_index"))
        .with_columns(start_ns=at - pl.col("pass_start_ns"))
        .select(*KERNELS)
        .sort(*replay, "node")
    )


def _kernel(found: Slice) -> Iterator[tuple[str, Any]]:
    """The columns of a kernel, but for those that others of its replay decide."""
    told = found.arguments
    arm, _, experiment = found.process.partition(" (")
    yield "arm", arm
    yield "experiment", experiment.rstrip(")") or "captured"
    yield "pass_index", told.get("pass", -1)
    yield "name", found.name
    yield "at_ns", found.start_ns
    yield "duration_ns", found.end_ns - found.start_ns
    for name in KERNELS.keys() & told.keys():
        yield name, told[name]
    for name in ("grid", "block"):
        for axis in "xyz":
            yield f"{name}_{axis}", told.get(name, {}).get(axis)


def _slice(
    place: tuple[str, str],
    at_ns: int,
    event: Any,  # noqa: ANN401 (the library has no types)
    texts: _Texts,
) -> Slice:
    names = texts["debug_annotation_names"]
    flows = tuple(event.flow_ids)
    assert flows == tuple(event.flow_ids_old)
    (category,) = event.category_iids
    return Slice(
        *place,
        category=texts["event_categories"][category],
        name=texts["event_names"][event.name_iid],
        start_ns=at_ns,
        depth=0,
        arguments={
            names[each.name_iid]: _value(each, names)
            for each in event.debug_annotations
        },
        flows=flows,
    )


def _value(annotation: Any, names: dict[int, str]) -> Any:  # noqa: ANN401
    if annotation.dict_entries:
        return {
            names[each.name_iid]: each.int_value for each in annotation.dict_entries
        }
    if annotation.array_values:
        return [each.int_value for each in annotation.array_values]
    text = annotation.WhichOneof("value") == "string_value"
    return annotation.string_value if text else annotation.int_value
