"""The report on several traces: one row a rank."""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import polars as pl

from layerscope.analyze.rank_alignment import RankKernels, align_ranks
from layerscope.analyze.swept_trace import SweptTrace
from layerscope.analyze.trace_communication import communication
from layerscope.analyze.trace_shares import device_totals, step_shares
from layerscope.analyze.trace_verdict import verdicts
from layerscope.report.document import Cell, Column, Fact, Kind, Report, Table
from layerscope.report.ranks import alignment_report
from layerscope.report.table_sets import counting_copies
from layerscope.report.trace import TraceView, seen
from layerscope.report.trace_facts import (
    format_words,
    missing_notes,
    step_words,
    trust_facts,
    verdict_words,
)
from layerscope.trace import TraceNote
from layerscope.units import format_bytes, format_things

_RANKS: Final = (
    Column("rank", "trace", Kind.TEXT),
    Column("kernels", "kernels", Kind.COUNT),
    Column("span_ns", "first to last", Kind.TIME),
    Column("busy_ns", "busy", Kind.TIME),
    Column("gap_ns", "gaps", Kind.TIME),
    Column("communication_ns", "communication", Kind.TIME),
    Column("hidden_ns", "hidden of it", Kind.TIME),
)
_STEPS: Final = (
    Column("rank", "trace", Kind.TEXT),
    Column("step_kind", "steps", Kind.TEXT),
    Column("layers", "layers", Kind.COUNT),
    Column("kernels", "kernels", Kind.COUNT),
    Column("share_ns", "median", Kind.TIME),
    Column("gap_ns", "gaps", Kind.TIME),
    Column("before_ns", "gap before", Kind.TIME),
)
_ONE: Final = "give one trace alone to see its layers, overlaps and gaps"
_UNRELATED: Final = (
    "these traces do not say that they are different ranks of one job: not aligned"
)
_OWN_TIME: Final = (
    "communication holds the wait for the slowest rank; hidden of it is what "
    "computation on other streams covers"
)


def ranks_report(traces: Sequence[SweptTrace], view: TraceView) -> Report:
    """What is told of several traces; of different ranks of one job, on one clock.

    Args:
        traces: in the order of rows.
        view: what of each.

    Raises:
        InputError: one of them has no kernels, or not what `view` asks for.
    """
    names = rank_names(traces)
    kernels = [seen(each, view)[1] for each in traces]
    return Report(
        title=f"{format_things(len(traces), 'trace')}: {names[0]} to {names[-1]}",
        headlines=(
            *trust_facts(_together(traces)),
            *(
                Fact(name, verdict_words(verdicts(own, each.trust)))
                for name, each, own in zip(names, traces, kernels, strict=True)
            ),
        ),
        facts=tuple(_facts(traces)),
        tables=(
            _rank_table(names, kernels),
            *counting_copies(
                _step_table(names, kernels), *(own["kind"] for own in kernels)
            ),
        ),
        notes=(
            *(_OWN_TIME, *missing_notes(traces), _ONE),
            *(() if _ranks(traces) else (_UNRELATED,)),
        ),
        parts=tuple(_aligned(traces, kernels)),
    )


def _aligned(
    traces: Sequence[SweptTrace], kernels: Sequence[pl.DataFrame]
) -> Iterator[Report]:
    """Ranks of one job on one clock; other traces have nothing in common."""
    if ranks := _ranks(traces):
        own = zip(ranks, kernels, strict=True)
        aligned = align_ranks([RankKernels(*each) for each in own])
        yield alignment_report(aligned, traces[0].trace.ranks)


def _ranks(traces: Sequence[SweptTrace]) -> list[int]:
    """The ranks, where all traces say that they are different ones of one job."""
    ranks = [each.trace.rank for each in traces if each.trace.rank is not None]
    sizes = {each.trace.ranks for each in traces}
    is_told = len(ranks) == len(traces) == len(set(ranks)) and len(sizes) == 1
    return ranks if is_told else []


def rank_names(traces: Sequence[SweptTrace]) -> list[str]:
    """What rows call the traces: their ranks, or else their places and files."""
    if ranks := _ranks(traces):
        return [f"rank {rank}" for rank in ranks]
    return [f"{place}: {each.trace.label}" for place, each in enumerate(traces)]


def _together(traces: Sequence[SweptTrace]) -> list[TraceNote]:
    """The notes of all traces; equal ones are added up."""
    counts: dict[TraceNote, list[int]] = {}
    for each in traces:
        for note in each.trust.notes:
            known = msgspec.structs.replace(note, count=1)
            counts.setdefault(known, []).append(note.count)
    return [
        msgspec.structs.replace(
            note,
            what=f"{note.what}, in {len(found)} of {len(traces)} traces",
            count=sum(found),
        )
        for note, found in counts.items()
    ]


def _facts(traces: Sequence[SweptTrace]) -> Iterator[Fact]:
    words = (format_words(each.trace) for each in traces)
    size = sum(each.trace.source.bytes for each in traces)
    yield Fact("formats", f"{'; '.join(dict.fromkeys(words))}, {format_bytes(size)}")
    names = dict.fromkeys(
        device.name for each in traces for device in each.trace.devices if device.name
    )
    if names:
        yield Fact("devices", ", ".join(names))


def _rank_table(names: Sequence[str], kernels: Sequence[pl.DataFrame]) -> Table:
    return Table(
        title="traces",
        columns=_RANKS,
        rows=tuple(
            _rank_row(name, own) for name, own in zip(names, kernels, strict=True)
        ),
    )


def _rank_row(name: str, own: pl.DataFrame) -> tuple[Cell, ...]:
    totals = device_totals(own).row(0, named=True)
    told = communication(own)
    keys = ("kernels", "span_ns", "busy_ns", "gap_ns")
    return (name, *(totals[key] for key in keys), told.busy_ns, told.hidden_ns)


def _step_table(
    names: Sequence[str], kernels: Sequence[pl.DataFrame]
) -> Iterator[Table]:
    """The median step of every kind, trace by trace; none where none has steps."""
    rows = [
        (name, step_words(row["step_kind"], row["steps"]), *values)
        for name, own in zip(names, kernels, strict=True)
        for row in _medians(own).iter_rows(named=True)
        for values in [[row[column.key] for column in _STEPS[2:]]]
    ]
    if rows:
        yield Table("median step of each trace", _STEPS, tuple(rows))


def _medians(own: pl.DataFrame) -> pl.DataFrame:
    """Medians over the steps of each kind."""
    return (
        step_shares(own)
        .group_by("step_kind", maintain_order=True)
        .agg(
            pl.len().alias("steps"),
            pl.col("layers", "kernels", "share_ns", "gap_ns", "before_ns").median(),
        )
    )
