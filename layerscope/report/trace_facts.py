"""The header of a report on a trace: how far it can be trusted, and what is in it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import polars as pl

from layerscope.analyze.swept_trace import SweptTrace
from layerscope.analyze.trace_communication import communication
from layerscope.analyze.trace_shares import device_totals
from layerscope.analyze.trace_trust import coverage
from layerscope.analyze.trace_verdict import Part, StepVerdict
from layerscope.report.document import Fact
from layerscope.schema import UNASSIGNED
from layerscope.trace import NOTE_KINDS, Trace, TraceDevice, TraceNote
from layerscope.units import (
    format_bytes,
    format_count,
    format_ns,
    format_percent,
    format_things,
)

_NO_DOUBT: Final = "nothing was found that speaks against this trace"
WHOLE_DEVICE: Final = "no steps found: the whole device"
"""What is told of where there are no steps."""

_MISSING: Final = (
    "kernels are missing: a gap is time in which none was recorded; whether the device "
    "was idle nobody knows"
)
_TOLD: Final = 0.001
"""Share of the time below which a part is not named with a verdict."""

_WAITS: Final = "waits"
"""How verdicts on steps that wait begin."""

_MOST_VARIANTS: Final = 8
"""Variants of layers whose number is told."""

_VENDORS: Final = {"sm_": "SMs", "gfx": "CUs"}


def trust_facts(notes: Sequence[TraceNote]) -> Iterator[Fact]:
    """A line for each kind of note, the gravest first; said before any number."""
    if not notes:
        yield Fact("trust", _NO_DOUBT)
    for kind in NOTE_KINDS:
        told = [_note(each) for each in notes if each.kind == kind]
        if told:
            yield Fact(kind, "; ".join(told))


def _note(note: TraceNote) -> str:
    """What was noted and how often; of a whole file's nature there is no count."""
    is_whole = note.kind == "untrusted" and note.count == 1
    return note.what if is_whole else f"{note.what} ({format_count(note.count)})"


def missing_notes(traces: Sequence[SweptTrace]) -> Iterator[str]:
    """What gaps are where one of the traces lacks kernels; nothing where none does."""
    if any(each.trust.why_no_idle for each in traces):
        yield _MISSING


def verdict_facts(found: Sequence[StepVerdict]) -> Iterator[Fact]:
    """What the steps of each kind do most, and the evidence."""
    for each in found:
        yield Fact(verdict_of(each), _judged(each))


def verdict_words(found: Sequence[StepVerdict]) -> str:
    """The same on one line."""
    told = [_judged(each) for each in found]
    if len(told) == 1 and found[0].steps:
        return told[0]
    return "; ".join(
        f"{verdict_of(each)}: {words}" for each, words in zip(found, told, strict=True)
    )


def verdict_of(verdict: StepVerdict) -> str:
    """What a verdict is on: ``3 decode steps``, or the whole device."""
    if not verdict.steps:
        return WHOLE_DEVICE
    return step_words(verdict.step_kind, verdict.steps)


def _judged(verdict: StepVerdict) -> str:
    whole = verdict.whole_ns or 1
    parts = ", ".join(
        f"{part} {format_percent(value / whole)}"
        for part, value in verdict.parts.items()
        if value >= _TOLD * whole
    )
    reason = f": {verdict.reason}" if verdict.reason else ""
    return f"{_told(verdict, whole)}{reason}{f' ({parts})' if parts else ''}"


def _told(verdict: StepVerdict, whole_ns: int) -> str:
    """The verdict; how much it waits, where it does."""
    if not verdict.verdict.startswith(_WAITS):
        return verdict.verdict
    waiting_ns = whole_ns - verdict.parts.get(Part.COMPUTE, 0)
    share = format_percent(waiting_ns / whole_ns)
    return verdict.verdict.replace(_WAITS, f"{_WAITS} {share} of the time", 1)


def step_words(step_kind: str | None, steps: int) -> str:
    """So many steps of a kind: ``3 decode steps``."""
    named = "" if step_kind in (None, "unknown") else f"{step_kind} "
    return format_things(steps, f"{named}step")


def trace_facts(swept: SweptTrace, device: int | None) -> Iterator[Fact]:
    """What was read, and what of it is told about, line by line.

    Args:
        swept: the trace.
        device: which one is told about.
    """
    own = swept.on(device)
    size = format_bytes(swept.trace.source.bytes)
    yield Fact("format", f"{format_words(swept.trace)}, {size}")
    yield Fact("device", _device(swept, device))
    yield from _work(own, is_whole=not swept.trust.why_no_idle)
    yield from _placed(own, swept.without_layers)


def format_words(trace: Trace) -> str:
    """Format and tool of the file."""
    source = trace.source
    is_known = not source.written_by or source.format.startswith(source.written_by)
    return f"{source.format}{'' if is_known else f' of {source.written_by}'}"


def _device(swept: SweptTrace, device: int | None) -> str:
    known = {each.device: each for each in swept.trace.devices}
    number = "" if device is None else str(device)
    described = known.get(device) if device is not None else None
    words = [number, *(_described(described) if described else ())]
    if described is None:
        words.append("not described in the file")
    trace = swept.trace
    if trace.rank is not None:
        of = "" if trace.ranks is None else f" of {trace.ranks}"
        words.append(f"rank {trace.rank}{of}")
    return ", ".join(filter(None, words))


def _described(device: TraceDevice) -> Iterator[str]:
    yield device.name
    yield device.architecture
    if device.processors:
        unit = _VENDORS.get(device.architecture[:3], "processors")
        yield f"{device.processors} {unit}"
    if device.memory_bytes:
        yield format_bytes(device.memory_bytes)


def _work(own: pl.DataFrame, *, is_whole: bool) -> Iterator[Fact]:
    """What ran, for how long, beside what; not `is_whole` where kernels are missing."""
    totals = device_totals(own).row(0, named=True)
    told = communication(own)
    copies = totals["copies"]
    others = f", {format_things(copies, 'copy or fill')}" if copies == 1 else ""
    others = f", {format_count(copies)} copies and fills" if copies > 1 else others
    yield Fact(
        "kernels",
        f"{format_things(totals['kernels'], 'kernel')}{others} on "
        f"{format_things(totals['streams'], 'stream')}",
    )
    share = totals["busy_ns"] / totals["span_ns"] if totals["span_ns"] else 0.0
    what = "something" if is_whole else "what was recorded"
    yield Fact(
        "time",
        f"{format_ns(totals['span_ns'])} from the first kernel to the last; {what} "
        f"ran for {format_ns(totals['busy_ns'])} of it ({format_percent(share)}), "
        f"durations add up to {format_ns(totals['sum_ns'])}",
    )
    if told.same_stream_ns or told.cross_stream_ns:
        yield Fact(
            "overlap",
            f"{format_ns(told.same_stream_ns)} of kernels of one stream, "
            f"{format_ns(told.cross_stream_ns)} of kernels of several",
        )
    if told.kernels:
        yield Fact(
            "communication",
            f"{format_things(told.kernels, 'kernel')}, {format_ns(told.busy_ns)}, of "
            f"which computation on other streams hides {format_ns(told.hidden_ns)}",
        )


def _placed(own: pl.DataFrame, reasons: Mapping[str, int]) -> Iterator[Fact]:
    """Steps, layers and regions that were found, and how much they cover."""
    covered = coverage(own)
    steps = own.filter(pl.col("step").is_not_null())
    kinds = steps.group_by("step_kind", maintain_order=True).agg(
        pl.col("step").n_unique()
    )
    words = [step_words(kind, count) for kind, count in kinds.iter_rows()]
    took = f", in all {format_ns(int(steps['share_ns'].sum()))}" if words else ""
    none = "none found; what follows is of the whole device"
    yield Fact("steps", f"{', '.join(words) or none}{took}")
    share = f"; {_percent(covered.layers)}" if covered.layers else ""
    yield Fact("layers", f"{_layers(own)}{share}")
    if reasons:
        lacking = (
            f"in {format_things(count, 'step')}: {reason}" if count else reason
            for reason, count in reasons.items()
        )
        yield Fact("no layers", "; ".join(lacking))
    known = own.filter(pl.col("region") != UNASSIGNED, pl.col("kind") == "kernel")
    said = known.select(
        by=pl.col("assigned_by").str.extract(r"^(\w+)"), ns="duration_ns"
    )
    whole = int(own.filter(pl.col("kind") == "kernel")["duration_ns"].sum()) or 1
    by = said.group_by("by").agg(pl.col("ns").sum()).sort("ns", descending=True)
    sources = [f"{name} {format_percent(ns / whole)}" for name, ns in by.iter_rows()]
    by_what = f": by {', '.join(sources)}" if sources else ""
    yield Fact("regions", f"known for {_percent(covered.regions)}{by_what}")


def _percent(share: float) -> str:
    return f"{format_percent(share)} of the time of kernels"


def _layers(own: pl.DataFrame) -> str:
    """How many layers a step has, and of which variants."""
    layers = own.filter(pl.col("layer").is_not_null())
    if layers.is_empty():
        return "no repeated layer found"
    told = {
        kind if isinstance(kind, str) else None: _of_kind(rows)
        for (kind,), rows in layers.group_by("step_kind", maintain_order=True)
    }
    if len(told) == 1:
        return next(iter(told.values()))
    return "; ".join(
        f"{step_words(kind, 1).removeprefix('1 ')}: {words}"
        for kind, words in told.items()
    )


def _of_kind(layers: pl.DataFrame) -> str:
    """The same of the layers of steps of one kind."""
    counts = layers.group_by("step", maintain_order=True).agg(
        pl.col("layer").n_unique()
    )["layer"]
    found = counts.to_list()
    number = " to ".join(map(str, dict.fromkeys((min(found), max(found)))))
    variants = (
        layers.select("step", "layer", "variant")
        .unique()
        .group_by("variant")
        .agg(pl.len())
    )
    if variants.height == 1:
        return f"{number} a step, all alike"
    told = variants.sort("len", "variant", descending=[True, False])
    each = [f"{name} {format_count(count)}" for name, count in told.rows()]
    rest = len(each) - _MOST_VARIANTS
    if rest > 0:
        count = int(told["len"].slice(_MOST_VARIANTS).sum())
        each[_MOST_VARIANTS:] = [
            f"{format_things(rest, 'other')} {format_count(count)}"
        ]
    steps = len(found)
    over = f" in {format_count(steps)} steps" if steps > 1 else ""
    return f"{number} a step, of variants{over} {', '.join(each)}"
