"""What a run measured, in words: a layer, its draft, callables, or a trace."""

from collections.abc import Iterator
from typing import Final

from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import LayerSpec
from layerscope.report.document import Fact
from layerscope.run_header import RunHeader
from layerscope.study import L2_FACTOR, CallableSpec, Spec
from layerscope.trace_spec import TraceSpec, TraceSteps
from layerscope.units import (
    format_bytes,
    format_count,
    format_number,
    format_percent,
    format_things,
)

_ASSIGNED: Final = {
    "rule": "by rules on names",
    "sequence": "by their place between others",
    "range": "by ranges",
    "neighbours": "by neighbours",
    "nothing": "unassigned",
}
"""What says regions of kernels of a trace, in words."""


def title(spec: Spec) -> str:
    """What the report is of."""
    match spec:
        case LayerSpec():
            return f"{spec.model.name}, layer {spec.layer}"
        case DraftSpec():
            return f"draft of {spec.model}"
        case CallableSpec():
            return "callables"
        case TraceSpec():
            return _files(spec)


def noun(spec: Spec) -> str:
    """What one pass runs, for sentences about it."""
    match spec:
        case LayerSpec():
            return "layer"
        case DraftSpec():
            return "draft"
        case CallableSpec():
            return "call"
        case TraceSpec():
            return "layer" if any(each.layers for each in spec.steps) else "step"


def error_name(spec: Spec) -> str:
    """What the numbers of `NumericsCheck` are."""
    if isinstance(spec, DraftSpec):
        return "logit below the best token's"
    return "relative error"


def work_facts(header: RunHeader) -> Iterator[Fact]:
    """The work of one pass, line by line."""
    spec = header.study.spec
    match spec:
        case LayerSpec():
            yield from _layer(header, spec)
        case DraftSpec():
            yield from _draft(header, spec)
        case CallableSpec():
            yield from _callables(spec, header.study.steps)
        case TraceSpec():
            yield from _trace(spec)


def _layer(header: RunHeader, spec: LayerSpec) -> Iterator[Fact]:
    model = spec.model
    yield Fact("model", f"{model.name}, layer {spec.layer} of {model.layers}")
    yield Fact("step", describe_step(spec))
    yield Fact("types", f"{spec.dtype} activations, {spec.weight_dtype} weights")
    if header.weights:
        yield Fact("weights", header.weights)
    yield Fact("ranks", _ranks(spec))
    if model.experts:
        drawn = [count for step in header.distinct_experts for count in step]
        distinct = (
            f"; {min(drawn)} to {max(drawn)} of {model.experts} experts a pass, "
            f"mean {format_number(sum(drawn) / len(drawn), 1)}"
            if drawn
            else ""
        )
        yield Fact("routing", f"pinned, {spec.routing}{distinct}")


def describe_step(spec: LayerSpec) -> str:
    """Rows, requests, context and pages of one step, in words."""
    rows, requests, drafts = (
        format_things(count, thing)
        for count, thing in (
            (spec.rows, "row"),
            (spec.requests, "request"),
            (spec.draft_tokens, "draft token"),
        )
    )
    return (
        f"{rows} = {requests} × (1 + {drafts}), context {format_count(spec.context)}, "
        f"KV pages of {spec.page_size}"
    )


def _ranks(spec: LayerSpec | DraftSpec) -> str:
    if spec.shard_shaped:
        return f"shard-shaped: slice of one rank of {spec.tp}, communication left out"
    whole = "vocabulary" if isinstance(spec, DraftSpec) else "layer"
    return f"1, the whole {whole}" if spec.tp == 1 else f"{spec.tp}, real"


def _draft(header: RunHeader, spec: DraftSpec) -> Iterator[Fact]:
    yield Fact(
        "draft",
        f"{format_things(spec.tokens, 'greedy token')}, one after another, for "
        f"{format_things(spec.requests, 'request')}; base logits given, bigram bias of "
        f"rank {spec.rank}",
    )
    vocabulary = format_things(spec.vocab_size, "token")
    if spec.tp > 1:
        vocabulary += f", {format_count(spec.vocab_slice)} on this rank"
    yield Fact("vocabulary", vocabulary)
    yield Fact("types", f"{spec.dtype} w1, {spec.weight_dtype} w2, float32 logits")
    yield Fact("weights", header.weights)
    yield Fact("ranks", _ranks(spec))
    yield Fact("w2", _w2(header, spec))


def _w2(header: RunHeader, spec: DraftSpec) -> str:
    """Where every arm finds w2: in memory, in the cache, or on chip."""
    told = [
        f"{format_bytes(spec.w2_bytes)}, a copy a pass: {_first_token(header, spec)}"
    ]
    later = _later_tokens(header, spec)
    for arm, reads in header.w2_reads.items():
        if reads == 1:
            told.append(f"{arm} reads it once a pass, and keeps it on chip")
        else:
            told.append(f"{arm} reads it {reads} times a pass, {later}")
    return "; ".join(told)


def _first_token(header: RunHeader, spec: DraftSpec) -> str:
    l2_bytes = header.environment.device.l2_bytes
    if not l2_bytes:
        return "where a pass's first token finds it is not known here"
    if min(header.study.lengths) * spec.w2_bytes < L2_FACTOR * l2_bytes:
        return "even a pass's first token may find it in the L2"
    return "cold at the first token"


def _later_tokens(header: RunHeader, spec: DraftSpec) -> str:
    """What the cache holds of w2 once the first token has read it.

    Sizes near that of the cache are neither here nor there: which lines stay is up to
    its replacement.
    """
    l2_bytes = header.environment.device.l2_bytes
    beside = f"an L2 of {format_bytes(l2_bytes)}"
    if not l2_bytes:
        return "whether later tokens find it in a cache is not known here"
    if 2 * spec.w2_bytes <= l2_bytes:
        return f"warm by nature at later tokens: it fits {beside}"
    if spec.w2_bytes >= 2 * l2_bytes:
        return f"cold again at later tokens: it is larger than {beside}"
    return f"cold in part at later tokens: it is about as large as {beside}"


def _callables(spec: CallableSpec, steps: int) -> Iterator[Fact]:
    yield Fact("inputs", ", ".join(spec.inputs) or "none")
    changing = (
        f"{steps} different ones, changed with the input step"
        if steps > 1
        else "the same at every replay"
    )
    yield Fact("values", changing)
    regions = [f"{name} = {', '.join(found)}" for name, found in spec.regions.items()]
    yield Fact("regions", "; ".join(regions) or "as the code marks them")


def _trace(spec: TraceSpec) -> Iterator[Fact]:
    told = [_files(spec).removeprefix("trace "), spec.format]
    if spec.written_by:
        told.append(f"written by {spec.written_by}")
    if spec.recorded:
        told.append(f"begun {spec.recorded}")
    yield Fact("trace", ", ".join(told))
    yield Fact("steps", "; ".join(map(_steps, spec.steps)))
    whole_ns = sum(spec.assigned_ns.values())
    if whole_ns:
        shares = (
            f"{_ASSIGNED.get(what, what)} {format_percent(time_ns / whole_ns)}"
            for what, time_ns in spec.assigned_ns.items()
        )
        yield Fact("regions", f"of kernel time {', '.join(shares)}")


def _files(spec: TraceSpec) -> str:
    """The file, or how many there are."""
    first, *others = spec.files
    if not others:
        return f"trace {first}"
    return f"{format_count(len(spec.files))} traces, {first} to {others[-1]}"


def _steps(found: TraceSteps) -> str:
    steps = f"{found.arm}: {format_things(found.steps, 'step')}"
    if not found.layers:
        return f"{steps}, no layers found"
    layers = f"{steps} of {format_things(found.layers, 'layer')}"
    if len(found.variants) <= 1:
        return layers
    counts = (f"{count} × {name}" for name, count in found.variants.items())
    return f"{layers} ({', '.join(counts)})"
