"""From the packets of a Perfetto trace to its kernels, copies, calls and markers."""

from typing import Any, Final

import polars as pl

from layerscope.ingest.assembling import Rows, call_rows
from layerscope.ingest.columns import Columns, Names
from layerscope.ingest.perfetto_clocks import Clocks
from layerscope.ingest.perfetto_sequence import Sequence
from layerscope.ingest.perfetto_slices import MARKS, ends_of
from layerscope.ingest.perfetto_tracks import Track, Tracks
from layerscope.ingest.perfetto_work import (
    CALLS,
    HSA_CALLS,
    KINDS,
    MARKERS,
    WORK,
    correlation,
    number,
    stage_of,
    work_of,
)
from layerscope.schema import INT, TRACE_KINDS, Schema
from layerscope.trace import TraceLog

_BEGIN: Final = 1  # TrackEvent.TYPE_SLICE_BEGIN
_END: Final = 2  # TrackEvent.TYPE_SLICE_END

_SPAN: Final[Schema] = dict.fromkeys(
    ("slice", "name", "at_ns", "length_ns", "process"), INT
)
_CALLED: Final[Schema] = dict.fromkeys(("thread", "correlation", "is_hsa"), INT)
_MARKED: Final[Schema] = dict.fromkeys(("thread",), INT)
_MATTERING: Final = KINDS.keys() | CALLS | HSA_CALLS | MARKERS


class Events:
    """Collects the slices that matter, of all sequences of packets."""

    def __init__(self, names: Names, log: TraceLog) -> None:
        """Begin without any; `log` is told of what had to be left out."""
        self._names = names
        self._log = log
        self._sequences: dict[int, Sequence] = {}
        self._tracks = Tracks()
        self._work = Columns(_SPAN | WORK)
        self._calls = Columns(_SPAN | _CALLED)
        self._markers = Columns(_SPAN | _MARKED)
        self._marks = Columns(MARKS)
        self._slices = 0
        self.clocks = Clocks()
        self.is_of_rocprof = False
        """Whether kernels look as rocprofv3 writes them."""

        self.is_of_layerscope = False

    def add(self, packet: Any) -> None:  # noqa: ANN401 (the library has no types)
        """Take one packet."""
        key = packet.trusted_packet_sequence_id
        sequence = self._sequences.get(key)
        if sequence is None:
            sequence = self._sequences[key] = Sequence(self._names)
        if not sequence.begin(packet):
            self._log.add("dropped", "packets whose names were lost before them")
        elif packet.HasField("track_event"):
            self._add_event(packet, sequence)
        elif packet.HasField("track_descriptor"):
            self._tracks.describe(packet.track_descriptor)
        elif packet.HasField("clock_snapshot"):
            self.clocks.learn(packet.clock_snapshot, sequence.clocks)
        elif packet.HasField("gpu_render_stage_event"):
            self._add_stage(packet, sequence)

    def rows(self) -> Rows:
        """All that was found, with the ends of slices and without a lone process."""
        ends = ends_of(self._marks.frame(), self._log)
        kinds = dict(enumerate(TRACE_KINDS))
        kind = pl.col("kind").replace_strict(
            kinds, default=None, return_dtype=pl.String
        )
        work = self._ended(self._work, ends, are_kernels=True).with_columns(kind)
        calls = self._ended(self._calls, ends)
        markers = self._ended(self._markers, ends)
        processes = pl.concat([work["process"], calls["process"]]).drop_nulls()
        if processes.n_unique() <= 1:
            alone = pl.lit(None, INT).alias("process")
            work, calls, markers = (
                frame.with_columns(alone) for frame in (work, calls, markers)
            )
        has_length = pl.col("end_ns") > pl.col("start_ns")  # else it is no range
        return Rows(
            work,
            call_rows(calls.with_columns(pl.col("is_hsa").cast(pl.Boolean)), work),
            markers.filter(has_length).with_columns(kind=pl.lit("annotation")),
        )

    def _ended(
        self, columns: Columns, ends: pl.DataFrame, *, are_kernels: bool = False
    ) -> pl.DataFrame:
        frame = columns.frame()
        texts = self._names.kernels if are_kernels else self._names.texts
        told = pl.col("at_ns") + pl.col("length_ns")
        ended = (
            frame.with_columns(texts(frame["name"]))
            .join(ends, on="slice", how="left", maintain_order="left")
            .with_columns(start_ns="at_ns", end_ns=pl.coalesce(told, "end_ns"))
            .drop("slice", "at_ns", "length_ns")
        )
        whole = ended.filter(pl.col("end_ns").is_not_null())
        self._log.add("dropped", "slices that never end", ended.height - whole.height)
        return whole

    def _time(self, packet: Any, sequence: Sequence) -> int | None:  # noqa: ANN401
        clock = sequence.clock(packet)
        time = self.clocks.common_ns(packet.timestamp, clock, sequence.clocks)
        if time is None:
            self._log.add("dropped", "events of a clock that nothing relates to others")
        return time

    def _add_event(self, packet: Any, sequence: Sequence) -> None:  # noqa: ANN401
        event = packet.track_event
        time = self._time(packet, sequence)  # of every event: clocks may add up
        uuid = sequence.track(event)
        if time is None or uuid is None or event.type not in {_BEGIN, _END}:
            return
        track = self._tracks.track(uuid)
        if event.type == _END:
            self._marks.add(track.number, time, -1, None)
            return
        is_kept = self._add_slice(event, time, track, sequence)
        self._marks.add(track.number, time, 1, self._slices if is_kept else None)
        self._slices += is_kept

    def _add_slice(
        self,
        event: Any,  # noqa: ANN401
        time: int,
        track: Track,
        sequence: Sequence,
    ) -> bool:
        """Whether the slice that begins is one that matters, which is then kept."""
        category = sequence.category(event)
        if category not in _MATTERING:
            return False
        told = sequence.arguments(event.debug_annotations)
        begin, end = number(told, "begin_ns"), number(told, "end_ns")
        length = None if begin is None or end is None else end - begin
        process = self._tracks.process(track)
        span = (self._slices, sequence.name(event), time, length, process)
        if category in KINDS:
            work = work_of(category, told, track)
            if work is None:
                return False
            self._work.add(*span, *work)
            self.is_of_rocprof |= category == "kernel_dispatch" and length is not None
            self.is_of_layerscope |= "hidden_ns" in told
            return True
        thread = number(told, "tid", "thread_id")
        thread = track.thread if thread is None else thread
        if category in MARKERS:
            self._markers.add(*span, thread)
        else:
            is_hsa = category in HSA_CALLS
            self._calls.add(*span, thread, correlation(told), int(is_hsa))
        return True

    def _add_stage(self, packet: Any, sequence: Sequence) -> None:  # noqa: ANN401
        event = packet.gpu_render_stage_event
        time = self._time(packet, sequence)
        work = stage_of(event, sequence)
        if work is None:
            self._log.add("dropped", "stages of graphics on a GPU")
        elif time is not None:
            name, _ = sequence.stage(event.stage_iid)
            own = sequence.name(event)
            name = name if own is None else own
            self._work.add(self._slices, name, time, event.duration, None, *work)
            self._slices += 1
