"""Reads Perfetto's protobuf traces, above all those that rocprofv3 writes.

Kernels are known by their category, or by the events that Perfetto has for the stages
of a GPU. Times are on the clock that counts from the start of the machine.
"""

from collections.abc import Callable
from typing import Any

from layerscope.errors import InputError
from layerscope.ingest.assembling import assemble
from layerscope.ingest.columns import Names
from layerscope.ingest.content import Content
from layerscope.ingest.formats import Format
from layerscope.ingest.perfetto_events import Events
from layerscope.ingest.perfetto_packets import Packets
from layerscope.progress import Progress
from layerscope.trace import Trace, TraceLog, TraceSource


def read(content: Content, log: TraceLog, progress: Progress) -> Trace:
    """The trace in a file of Perfetto.

    Context is the queue of HSA and stream the stream of HIP, where the writer tells;
    else stream is the queue, or the place of the track. Extents of launches are given
    in blocks; rocprofv3 gives products over all directions, which stand in x.

    Raises:
        InputError: the package ``perfetto`` is not installed, or the file holds no
            packets.
    """
    packets = Packets(_parser(content), log)
    events = Events(Names(log), log)
    is_empty = True
    for packet in packets.read(content.chunks(log, progress)):
        is_empty = False
        if packet.compressed_packets:
            for inner in packets.unpacked(packet.compressed_packets):
                events.add(inner)
        else:
            events.add(packet)
    if is_empty:
        msg = f"{content.name} holds no packets of Perfetto; give another file"
        raise InputError(msg)
    rows = events.rows()
    if events.is_of_rocprof:
        log.add(
            "untrusted",
            "overlaps of kernels on a queue: rocprofv3 takes them away when it writes "
            "a pftrace, by moving both kernels; its csv, json and rocpd keep the times",
            about="overlaps rewritten",
        )
    if events.is_of_layerscope:
        log.add(
            "untrusted",
            "an export of layerscope, which shows less than its run: give the run to "
            "`layerscope show`",
        )
    source = TraceSource(
        path=content.name,
        format=Format.PERFETTO,
        written_by=_writer(events),
        bytes=content.bytes,
    )
    return assemble(source, rows, log, unix_ns=events.clocks.unix_ns)


def _writer(events: Events) -> str:
    if events.is_of_rocprof:
        return "rocprofv3"
    return "layerscope" if events.is_of_layerscope else ""


def _parser(content: Content) -> Callable[[bytes], Any]:
    """Makes a packet of bytes, or None of what is none."""
    try:
        from google.protobuf.message import DecodeError  # noqa: PLC0415 (an extra)
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import (  # noqa: PLC0415
            TracePacket,
        )
    except ModuleNotFoundError as error:
        msg = (
            f"{content.name} is a trace of Perfetto, which cannot be read without "
            "its library; pip install 'layerscope[perfetto]'"
        )
        raise InputError(msg) from error

    def parse(text: bytes) -> Any:  # noqa: ANN401 (the library has no types)
        try:
            return TracePacket.FromString(text)
        except DecodeError:
            return None

    return parse
