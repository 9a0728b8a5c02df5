"""How fast graphs launched kernels, part by part of a run.

A chain of small kernels is timed beside what is measured. In every process it is of
another speed, so it tells of one run only. There, the slower of the two speeds at which
graphs replay takes 21 to 25 % longer on an H200 (runs in fixtures/backends).
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from layerscope.run_header import LaunchCost, LaunchPhase

_APART: Final = 1.1
"""Times that a kernel takes at the slower speed at least, of those at the faster."""


class Span(NamedTuple):
    """The least and the most that a small kernel took."""

    low_ns: float
    high_ns: float


def spans(costs: Sequence[LaunchCost]) -> dict[LaunchPhase, Span]:
    """By phase, in the order of measuring: what a small kernel took after another."""
    seen: dict[LaunchPhase, list[float]] = {}
    for cost in costs:
        seen.setdefault(cost.phase, []).append(cost.kernel_ns)
    return {phase: Span(min(found), max(found)) for phase, found in seen.items()}


def are_bounds_of_anchors(costs: Sequence[LaunchCost]) -> bool:
    """Whether bounds were measured at the speed of the anchors, and it was noted."""
    found = spans(costs)
    if "anchor" not in found or "bounds" not in found:
        return False
    return not is_apart(found["anchor"], found["bounds"])


def is_apart(one: Span, other: Span) -> bool:
    """Whether two parts of a run, or one that is given twice, were of two speeds."""
    lowest, highest = min(one.low_ns, other.low_ns), max(one.high_ns, other.high_ns)
    return highest > _APART * lowest
