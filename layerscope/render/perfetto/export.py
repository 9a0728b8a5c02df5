"""Runs to files: the median pass of every graph and its neighbours, or all passes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final

import polars as pl

from layerscope.analyze.median_pass import pictured_kernels, whole_replays
from layerscope.errors import InputError
from layerscope.experiment import CAPTURED
from layerscope.passes import REPLAY_KEYS
from layerscope.render.perfetto.counters import counter_packets
from layerscope.render.perfetto.flows import (
    REPLAY_NUMBER,
    number_replays,
    with_flows,
)
from layerscope.render.perfetto.names import Names
from layerscope.render.perfetto.picture import (
    GRAPH,
    counters,
    machine_levels,
    process_name,
    slices,
)
from layerscope.render.perfetto.slices import slice_packets
from layerscope.render.perfetto.tracks import Tracks
from layerscope.replays import read_replays, read_spans
from layerscope.run import Run
from layerscope.trace_spec import TraceSpec

_STEP_NS: Final = 100_000
"""Passes begin at whole multiples of it, so that their times are easily read."""


@dataclass(frozen=True, slots=True)
class Exported:
    """How much went into a trace."""

    processes: int
    passes: int
    kernels: int


class _Writer:
    """Writes a trace part by part; keeps only names and numbers between them."""

    def __init__(self, file: BinaryIO, run: Run, graphs: pl.DataFrame) -> None:
        self._file = file
        self._edges = run.edges
        self._levels = machine_levels(run.samples)
        self._names, self._tracks = Names(), Tracks()
        self._processes = {
            graph: self._tracks.process(process_name(*graph)) for graph in graphs.rows()
        }
        self._flow = 1
        self._passes = self._kernels = 0

    def write(self, kernels: pl.DataFrame) -> None:
        """Add whole passes: `PICTURED` on the clock of the trace, and ``label``."""
        graphs = kernels.select(_rows=pl.struct(GRAPH).rle()).unnest("_rows")
        row = 0
        for count in graphs["len"]:
            rows = kernels.slice(row, count)
            self._write(rows, self._processes[rows.select(GRAPH).row(0)])
            row += count
        self._kernels += kernels.height

    def _write(self, kernels: pl.DataFrame, process: int) -> None:
        """Add passes of one graph."""
        kernels = kernels.with_columns(number_replays())
        self._passes += kernels.select(REPLAY_NUMBER, "pass_index").n_unique()
        graph = kernels.select(GRAPH).head(1)
        edges = self._edges.join(graph, on=GRAPH, how="semi")
        levels = self._levels.join(graph, on=GRAPH, how="semi")
        kernels, self._flow = with_flows(kernels, edges, self._flow)
        layers = slices(kernels, process, self._tracks)
        values = counters(kernels, levels, process, self._tracks)
        self._file.write(self._tracks.take())
        for packets in slice_packets(layers, self._names):
            self._file.write(self._names.take())
            self._file.write(packets.data)
        self._file.write(counter_packets(values).data)

    def exported(self, processes: int) -> Exported:
        """How much was added so far."""
        return Exported(processes, self._passes, self._kernels)


def export_median(run: Run, file: BinaryIO, arms: Sequence[str] = ()) -> Exported:
    """Write the median pass of every graph, and the passes beside it.

    All median passes begin at the same time of the trace, so that graphs are compared
    by eye. A graph is an arm, its serial twin, or what another experiment made of it.

    Args:
        run: with kernels.
        file: where to.
        arms: only these; all where none are named.

    Raises:
        InputError: there is no kernel, no pass that counts, or no such arm.
        OSError: the file could not be written.
    """
    graphs = _graphs(run, run.kernels.select(GRAPH).unique(), arms)
    kernels = pictured_kernels(run.kernels.join(graphs, on=GRAPH, how="semi"))
    if kernels.is_empty():
        msg = f"{run.path} has no pass between two others; --all shows those it has"
        raise InputError(msg)
    first = (
        pl.col("start_ns") - pl.col("gap_ns")
    ).min()  # a slice may begin with a gap
    origin_ns = _up(-kernels.select(first).item())
    place = pl.col("place")
    median = pl.when(place == 0).then(pl.lit(", the median")).otherwise(pl.lit(""))
    writer = _Writer(file, run, graphs)
    writer.write(
        kernels.with_columns(
            start_ns=pl.col("start_ns") + origin_ns,
            end_ns=pl.col("end_ns") + origin_ns,
            label=pl.format("{} {}{}", _pass(run), "pass_index", median),
        )
    )
    return writer.exported(graphs.height)


def export_all(run: Run, file: BinaryIO, arms: Sequence[str] = ()) -> Exported:
    """Write every pass of every replay, reading a few replays at a time.

    The first replays of all graphs stand above each other, then the second ones, and so
    on; in each, the first pass that shares count begins at the same time.

    Args:
        run: one on disk; its kernels are read from there.
        file: where to.
        arms: only these; all where none are named.

    Raises:
        InputError: there is no kernel, or no such arm.
        RecordError: the kernels cannot be read.
        OSError: the file could not be written.
    """
    spans = read_spans(run.path)
    graphs = _graphs(run, spans.select(GRAPH).unique(), arms)
    begin, end = pl.col("begin_ns"), pl.col("end_ns")
    lead_ns = _up(spans.select(begin.max()).item())
    apart_ns = lead_ns + _up(spans.select((end - begin).max()).item())
    number = pl.int_range(pl.len(), dtype=pl.Int64).over(GRAPH)
    places = spans.select(*REPLAY_KEYS, _at_ns=lead_ns + number * apart_ns - begin)
    index = pl.col("pass_index")
    named = pl.when(index >= 0).then(pl.format("{} {}", _pass(run), index))
    is_trace = isinstance(run.header.study.spec, TraceSpec)
    outside = "outside of layers" if is_trace else "before the first pass"
    writer = _Writer(file, run, graphs)
    for part in read_replays(run.path):
        kernels = part.join(graphs, on=GRAPH, how="semi")
        if kernels.is_empty():
            continue
        placed = whole_replays(kernels).join(places, on=list(REPLAY_KEYS))
        writer.write(
            placed.with_columns(
                start_ns=pl.col("start_ns") + pl.col("_at_ns"),
                end_ns=pl.col("end_ns") + pl.col("_at_ns"),
                label=named.otherwise(pl.lit(outside)),
            )
        )
    return writer.exported(graphs.height)


def _graphs(run: Run, recorded: pl.DataFrame, arms: Sequence[str]) -> pl.DataFrame:
    """Those of the wanted arms, in the order of the study, as captured first."""
    if recorded.is_empty():
        msg = f"{run.path} has no kernels: nothing was recorded, so none can be shown"
        raise InputError(msg)
    known = recorded["arm"].unique().sort().to_list()
    for arm in arms:
        if arm not in known:
            msg = (
                f"--arms: nothing was recorded of {arm!r}; there are {', '.join(known)}"
            )
            raise InputError(msg)
    order = [*arms, *(arm.name for arm in run.header.study.arms), *known]
    rank = pl.col("arm").replace_strict({a: order.index(a) for a in known})
    wanted = recorded.filter(pl.col("arm").is_in(arms)) if arms else recorded
    return wanted.sort(rank, pl.col("experiment") != CAPTURED, "experiment")


def _pass(run: Run) -> pl.Expr:
    """What a pass is called."""
    is_trace = isinstance(run.header.study.spec, TraceSpec)
    return pl.lit("layer" if is_trace else "pass")


def _up(time_ns: int) -> int:
    """`time_ns`, or 0, rounded up to a whole number of steps."""
    return -(-max(time_ns, 0) // _STEP_NS) * _STEP_NS
