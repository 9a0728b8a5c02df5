"""Frames of values that hold from then on as packets of counters."""

import polars as pl
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from layerscope.render.perfetto.names import SEQUENCE
from layerscope.render.perfetto.packets import Bytes, Numbers, repeat


def counter_packets(values: pl.DataFrame) -> Bytes:
    """Every value as an event of its track, as serialised packets.

    Args:
        values: at least one row of Int64 track, at_ns and value, none of them negative.
    """
    columns = ("track", "at_ns", "value")
    return repeat(_build, {name: values[name].to_numpy() for name in columns})


def _build(numbers: Numbers) -> bytes:
    trace = Trace()
    packet = trace.packet.add(
        timestamp=numbers["at_ns"], trusted_packet_sequence_id=SEQUENCE
    )
    event = packet.track_event
    event.type = TrackEvent.TYPE_COUNTER
    event.track_uuid = numbers["track"]
    event.counter_value = numbers["value"]
    return bytes(trace.SerializeToString())
