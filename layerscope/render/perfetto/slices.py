"""Frames of named spans of time as packets of events that begin and end."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from layerscope.render.perfetto.arguments import (
    FLOWS,
    Arguments,
    Told,
    alike,
    annotate,
    columns_of,
    elements,
    numbers_of,
    told,
)
from layerscope.render.perfetto.names import NEEDED, SEQUENCE, Names
from layerscope.render.perfetto.packets import Bytes, Numbers, repeat

_END: Final = ("track", "end_ns")  # what the end of a slice tells
_FIXED: Final = "fixed "  # before the name of a number in a field of type fixed64


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class Slices:
    """Spans of one category; those on one track nest, or follow each other."""

    category: str

    frame: pl.DataFrame
    """Int64 track, start_ns and end_ns, String name, `FLOWS` where there are any, and
    the columns that `arguments` names: Int64, String or List(Int64), null where a slice
    has no such argument. No number is negative."""

    arguments: Arguments


@dataclass(frozen=True, slots=True)
class _Shape:
    """What slices that are alike have in common."""

    category: int
    told: Told
    flows: list[str]
    """Columns of the numbers of their flows."""

    is_whole: bool
    """Whether the end follows the start at once."""

    def build(self, numbers: Numbers) -> bytes:
        """The packets of one of them."""
        trace = Trace()
        event = _event(trace, TrackEvent.TYPE_SLICE_BEGIN, numbers, "start_ns")
        event.category_iids.append(self.category)
        event.name_iid = numbers["name_number"]
        # Old readers know the one field of flows, new ones take the other if both are
        # there. A flow ends nowhere: then it need not be known which end comes first.
        event.flow_ids_old.extend(numbers[flow] for flow in self.flows)
        event.flow_ids.extend(numbers[_FIXED + flow] for flow in self.flows)
        annotate(event.debug_annotations, self.told, numbers)
        if self.is_whole:
            _event(trace, TrackEvent.TYPE_SLICE_END, numbers, "end_ns")
        return bytes(trace.SerializeToString())


def slice_packets(layers: Sequence[Slices], names: Names) -> Iterator[Bytes]:
    """Every slice as an event at its start and one at its end, as serialised packets.

    Readers sort packets by time and leave those of one time in their order. What ends
    then must not be open when the next begins, so all ends come first, then slices of
    no length, and starts last.

    Args:
        layers: those whose slices lie within slices of others come after these.
        names: gives numbers to what the packets name.
    """
    is_short = pl.col("start_ns") == pl.col("end_ns")
    short = [layer.frame.filter(is_short) for layer in layers]
    long = [
        layer.frame.filter(~is_short) if some.height else layer.frame
        for layer, some in zip(layers, short, strict=True)
    ]
    for frame in long:
        if frame.height:
            yield repeat(_end, {name: frame[name].to_numpy() for name in _END})
    for layer, frame in zip(layers, short, strict=True):
        yield from _begins(layer, frame, names, is_whole=True)
    for layer, frame in zip(layers, long, strict=True):
        yield from _begins(layer, frame, names, is_whole=False)


def _begins(
    layer: Slices, frame: pl.DataFrame, names: Names, *, is_whole: bool
) -> Iterator[Bytes]:
    """The starts of some slices of a layer."""
    if frame.is_empty():
        return
    category = names.category(layer.category)
    flows = [FLOWS] if FLOWS in frame.columns else []
    shaping = [*columns_of(layer.arguments), *flows]
    shown = frame.select(
        *("track", "start_ns", "end_ns", *shaping),
        name_number=names.events(frame["name"]),
    )
    for rows in alike(shown, shaping):
        row = rows.row(0, named=True)
        numbers = numbers_of(rows)
        own = [flow.column for name in flows for flow in elements(name, row)]
        fixed = {_FIXED + flow: numbers[flow] for flow in own}
        shape = _Shape(category, told(layer.arguments, row, names), own, is_whole)
        columns = {key: item.to_numpy() for key, item in (numbers | fixed).items()}
        yield repeat(shape.build, columns, frozenset(fixed))


def _end(numbers: Numbers) -> bytes:
    trace = Trace()
    _event(trace, TrackEvent.TYPE_SLICE_END, numbers, "end_ns")
    return bytes(trace.SerializeToString())


def _event(trace: Any, kind: int, numbers: Numbers, at: str) -> Any:  # noqa: ANN401
    """A new event on the slice's track, at the time of the column `at`."""
    packet = trace.packet.add(
        timestamp=numbers[at],
        trusted_packet_sequence_id=SEQUENCE,
        sequence_flags=NEEDED,
    )
    packet.track_event.type = kind
    packet.track_event.track_uuid = numbers["track"]
    return packet.track_event
