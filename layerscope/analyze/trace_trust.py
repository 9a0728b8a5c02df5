"""What a trace cannot be trusted with: said before any number is."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from layerscope.analyze.graph_replays import (
    graph_launches,
    launches_without_kernels,
    missing_nodes,
    short_replays,
)
from layerscope.analyze.trace_gaps import GapCause
from layerscope.schema import LAUNCH_KEYS, UNASSIGNED
from layerscope.trace import NOTE_KINDS, NoteAbout, Trace, TraceLog, TraceNote

FEW: Final = 0.1
"""Share of graph launches, or of kernels, that the ends of a trace may cut off. Where
more is missing, nobody can tell when the device was idle."""

LONG_NS: Final = 1_000_000

MOST: Final = 0.5
"""Share of kernels that follow another at once from which records are stretched."""

TOUCHING_NS: Final = 1
FEWEST_PAIRS: Final = 20

HIDES_GAPS: Final = "durations hold the gaps between kernels"

_CUT: Final = (
    "layers cut by an end of the trace, or of a step: they count as kernels outside of "
    "layers"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trust:
    """How far the figures of a trace go."""

    notes: tuple[TraceNote, ...]
    """Those of the trace, and what its kernels and calls show; the gravest first."""

    why_no_idle: str = ""
    """Why nobody can tell when a device was idle; empty where one can."""

    why_no_overlap: str = ""
    """Why nobody can tell which kernels overlap; empty where one can."""

    why_few_gaps: str = ""
    """Why there may be more idle time than it seems; empty where there is not."""

    @property
    def why_no_gaps(self) -> str:
        """Why gaps cannot be told from kernels; empty where they can."""
        return self.why_no_idle or self.why_few_gaps


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """Shares of the time of a device's kernels."""

    layers: float
    """In layers."""

    regions: float
    """Of a known region."""


def trust_in(trace: Trace, caused: pl.DataFrame, cut_layers: int = 0) -> Trust:
    """What the trace says of itself, and what its figures say against it.

    Args:
        trace: as read.
        caused: from `trace_gaps.gap_causes`, of all devices.
        cut_layers: how many were found of which only a part was recorded.
    """
    log = TraceLog()
    missing = _told(trace.notes, "kernels missing")
    missing = missing or _under_recorded(caused, trace.calls, log)
    _launches(caused, trace, log)
    _records(caused, log)
    _gaps(caused, log)
    _ends(caused, log)
    log.add("doubted", _CUT, cut_layers)
    stretched = _stretched(caused, log)
    notes = (*trace.notes, *log.notes())
    return Trust(
        notes=tuple(sorted(notes, key=lambda note: NOTE_KINDS.index(note.kind))),
        why_no_idle=missing,
        why_no_overlap=_told(trace.notes, "overlaps rewritten"),
        why_few_gaps=stretched,
    )


def _told(notes: tuple[TraceNote, ...], about: NoteAbout) -> str:
    """What the reader says of that; empty where it says nothing."""
    return next((each.what for each in notes if each.about == about), "")


def coverage(launched: pl.DataFrame) -> Coverage:
    """How much of the time of kernels is placed.

    Args:
        launched: `schema.PLACED_KERNELS` or more, of one device.
    """
    kernels = launched.filter(pl.col("kind") == "kernel")
    duration = pl.col("duration_ns")
    sums = kernels.select(
        whole=duration.sum(),
        layers=duration.filter(pl.col("layer").is_not_null()).sum(),
        regions=duration.filter(pl.col("region") != UNASSIGNED).sum(),
    ).row(0, named=True)
    whole = sums["whole"] or 1
    return Coverage(layers=sums["layers"] / whole, regions=sums["regions"] / whole)


def _under_recorded(launched: pl.DataFrame, calls: pl.DataFrame, log: TraceLog) -> str:
    """Note replays that lack kernels; why idle time is unknown, where it is."""
    empty = launches_without_kernels(launched, calls)
    nodes, short = missing_nodes(launched), short_replays(launched)
    found = (
        ("launches of graphs without any kernel", empty, graph_launches(calls).height),
        ("kernels fewer than graph nodes times replays", nodes, launched.height),
        ("graph replays that lack kernels of others like them", short, short),
    )
    reasons = []
    for what, count, of in found:
        is_grave = count > FEW * of
        log.add(
            "untrusted" if is_grave else "doubted",
            what,
            count,
            about="kernels missing" if is_grave else "",
        )
        if is_grave:
            reasons.append(what)
    return " and ".join(reasons)


def _launches(launched: pl.DataFrame, trace: Trace, log: TraceLog) -> None:
    """Note what does not fit between kernels and the calls that launched them."""
    kernels = launched.filter(pl.col("kind") == "kernel")
    early = kernels.filter(pl.col("call_start_ns") > pl.col("start_ns"))
    log.add(
        "doubted",
        "kernels that begin before their launch: clocks of host and device differ",
        early.height,
    )
    if trace.calls.height and not _told(trace.notes, "launches missing"):
        lacking = kernels.filter(pl.col("call").is_null()).height
        what = "kernels whose launch is not in the trace"
        log.add("doubted", what, lacking, about="launches missing")
    shared = kernels.filter(~pl.col("is_replay"), pl.col("call").is_not_null()).filter(
        pl.len().over(LAUNCH_KEYS) > 1
    )
    log.add("doubted", "kernels that share a launch that is no graph's", shared.height)


def _records(launched: pl.DataFrame, log: TraceLog) -> None:
    kernels = launched.filter(pl.col("kind") == "kernel")
    none = kernels.filter(pl.col("duration_ns") == 0).height
    log.add("doubted", "kernels of no duration", none)


def _gaps(caused: pl.DataFrame, log: TraceLog) -> None:
    """Note idle time of a device that had been given work."""
    long = caused.filter(
        pl.col("gap_ns") >= LONG_NS, pl.col("cause") == GapCause.DEVICE.value
    )
    log.add(
        "doubted",
        "gaps of a millisecond and more before work that had been launched: kernels "
        "may be missing, or it waited for what the trace does not show",
        long.height,
    )


def _stretched(launched: pl.DataFrame, log: TraceLog) -> str:
    """Note kernels that seem to begin as the one before ends; empty where few do.

    ROCm's tracers before rocprofv3 give a queued kernel the end of the one before as
    its start, to the nanosecond, and so hide what lies between in its duration.
    """
    line = ("process", "device", "context", "stream")
    before = pl.col("end_ns").shift(1).over(line)
    apart = (pl.col("start_ns") - before).drop_nulls()
    found = launched.filter(pl.col("kind") == "kernel").select(
        touching=apart.is_between(0, TOUCHING_NS).sum(), pairs=apart.len()
    )
    touching, pairs = found.row(0)
    if pairs < FEWEST_PAIRS or touching < MOST * pairs:
        return ""
    what = "kernels recorded as beginning when the one before ended: "
    log.add("untrusted", f"{what}{HIDES_GAPS}", touching)
    return HIDES_GAPS


def _ends(launched: pl.DataFrame, log: TraceLog) -> None:
    """Note steps that the trace begins or ends within."""
    steps = (
        launched.filter(pl.col("step").is_not_null())
        .group_by("device", "step", "step_kind", maintain_order=True)
        .agg(layers=pl.col("layer").drop_nulls().n_unique())
        .sort("device", "step")
    )
    usual = pl.col("layers").median().over("device", "step_kind")
    place = pl.int_range(pl.len()).over("device")
    is_end = (place == 0) | (place == pl.len().over("device") - 1)
    cut = steps.filter(is_end, pl.col("layers") < usual).height
    log.add("doubted", "steps at an end of the trace with fewer layers: cut", cut)
