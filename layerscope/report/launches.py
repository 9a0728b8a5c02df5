"""How fast kernels were launched while a run was measured: what is said of it."""

from collections.abc import Iterator, Mapping
from typing import Final

from layerscope.analyze.launch_speeds import Span, is_apart, spans
from layerscope.report.document import Fact
from layerscope.run_header import LaunchPhase, RunHeader
from layerscope.units import format_ns

_PHASES: Final[Mapping[LaunchPhase, str]] = {
    "anchor": "anchors",
    "after": "anchors again",
    "bounds": "bounds",
    "reads": "reads",
}
_DOUBTED: Final[Mapping[LaunchPhase, str]] = {
    "after": "anchors taken again do not compare with those before",
    "bounds": "how far an arm is from a bound is not known so well",
}


def launch_facts(header: RunHeader) -> Iterator[Fact]:
    """What a small kernel took after another, by part of the study."""
    found = spans(header.launch_costs)
    if found:
        told = [f"{_text(span)} ({_PHASES[phase]})" for phase, span in found.items()]
        yield Fact("launches", f"a small kernel after another {', '.join(told)}")


def launch_warnings(header: RunHeader) -> Iterator[str]:
    """Parts of the study that were of another speed than its anchors."""
    found = spans(header.launch_costs)
    anchors = found.get("anchor")
    if anchors is None:
        if header.bounds:
            yield (
                "at which speed kernels were launched while bounds were measured was "
                "not noted: bounds may be longer than they would be for the arms"
            )
        return
    if is_apart(anchors, anchors):
        yield (
            "kernels were launched at two speeds while anchors were measured: a small "
            f"one took {_text(anchors)} after another; captures do not compare"
        )
        return
    for phase, doubt in _DOUBTED.items():
        if phase in found and is_apart(anchors, found[phase]):
            yield (
                f"{_PHASES[phase]}: kernels were launched at another speed than for "
                f"anchors: a small one took {_text(found[phase])} after another, not "
                f"{_text(anchors)}; {doubt}"
            )


def launch_notes(header: RunHeader) -> Iterator[str]:
    """What cold reads are, where they were of another speed than the anchors."""
    found = spans(header.launch_costs)
    if "anchor" not in found or "reads" not in found:
        return
    anchors, reads = found["anchor"], found["reads"]
    if is_apart(anchors, reads) and not is_apart(anchors, anchors):
        side = "longer" if reads.high_ns > anchors.high_ns else "shorter"
        yield (
            f"cold reads: beside them a small kernel took {_text(reads)} after "
            f"another, beside the anchors {_text(anchors)}; so a read of few bytes "
            f"seems {side} than it would be for an arm"
        )


def _text(span: Span) -> str:
    low, high = format_ns(span.low_ns), format_ns(span.high_ns)
    return low if low == high else f"{low} … {high}"
