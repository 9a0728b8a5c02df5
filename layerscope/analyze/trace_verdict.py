"""Whether the steps of a trace wait or compute, and on what they wait."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import polars as pl

from layerscope.analyze.trace_communication import with_exposed
from layerscope.analyze.trace_gaps import GapCause
from layerscope.analyze.trace_shares import BETWEEN, in_steps
from layerscope.analyze.trace_trust import Trust

WAITS: Final = 0.2
"""Share of a step from which it waits: without it, the step would be 1.25 times as
fast."""

CLEARLY: Final = 1.25
"""How far the largest part of the waiting must exceed the next to be named alone."""


_UNKNOWN: Final = (GapCause.UNKNOWN.value, GapCause.REPLAY.value)


class Part(StrEnum):
    """What the time of a step goes to."""

    COMPUTE = "computing"
    COMMUNICATION = "communication"
    LAUNCH = "late launches"
    DEVICE = "gaps on the device"
    UNKNOWN = "gaps of unknown cause"
    BETWEEN = "gaps between steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepVerdict:
    """What the steps of one kind do most."""

    step_kind: str | None
    """None of a device on which no steps were found."""

    steps: int
    verdict: str
    """``computes``, ``waits: late launches`` and the like, or ``unknown``."""

    reason: str = ""
    """Why it is unknown, or what a clear one lacks; may be empty."""

    parts: dict[Part, int]
    """ns of all these steps, largest first; they add up to the time of the steps. None
    where kernels are missing: nobody knows what the rest of the time went to."""

    @property
    def whole_ns(self) -> int:
        """The time of all these steps."""
        return sum(self.parts.values())


def verdicts(caused: pl.DataFrame, trust: Trust) -> tuple[StepVerdict, ...]:
    """A verdict on each kind of steps, or on all of a device that shows none.

    Every advance of the frontier is in one part: communication that nothing hides, all
    other work, and the gaps by cause. The gap before a step is between steps; that
    before the first one is left out, for nothing tells what was waited for.

    Args:
        caused: from `trace_gaps.gap_causes`, of one device.
        trust: in the trace.
    """
    found = in_steps(with_exposed(caused)).with_columns(
        cause=pl.when((pl.col("region") == BETWEEN) & (pl.col("gap_ns") > 0))
        .then(pl.lit(Part.BETWEEN.value))
        .otherwise(pl.col("cause"))
    )
    if found["step"].null_count():  # then there are none at all
        return (_verdict(None, 0, found, trust),)
    kinds = found["step_kind"].unique(maintain_order=True).to_list()
    return tuple(
        _verdict(kind, own["step"].n_unique(), own, trust)
        for kind in kinds
        for own in [found.filter(pl.col("step_kind").eq_missing(pl.lit(kind)))]
    )


def _verdict(
    kind: str | None, steps: int, own: pl.DataFrame, trust: Trust
) -> StepVerdict:
    parts = _parts(own)
    verdict, reason = _judged(parts, trust)
    return StepVerdict(
        step_kind=kind,
        steps=steps,
        verdict=verdict,
        reason=reason,
        parts={} if trust.why_no_idle else parts,
    )


def _parts(own: pl.DataFrame) -> dict[Part, int]:
    """The time of `own` by what it goes to, largest first, without empty parts."""
    gap, exposed, cause = pl.col("gap_ns"), pl.col("exposed_ns"), pl.col("cause")
    sums = own.select(
        (pl.col("exclusive_ns") - exposed).sum().alias(Part.COMPUTE.value),
        exposed.sum().alias(Part.COMMUNICATION.value),
        gap.filter(cause == GapCause.LAUNCH.value).sum().alias(Part.LAUNCH.value),
        gap.filter(cause == GapCause.DEVICE.value).sum().alias(Part.DEVICE.value),
        gap.filter(cause.is_in(_UNKNOWN)).sum().alias(Part.UNKNOWN.value),
        gap.filter(cause == Part.BETWEEN.value).sum().alias(Part.BETWEEN.value),
    ).row(0, named=True)
    parts = {part: int(sums[part.value]) for part in Part}
    ordered = sorted(parts.items(), key=lambda item: -item[1])
    return {part: value for part, value in ordered if value}


def _judged(parts: dict[Part, int], trust: Trust) -> tuple[str, str]:
    """The verdict, and why there is none, or what it lacks."""
    whole = sum(parts.values())
    if trust.why_no_idle or not whole:
        return "unknown", trust.why_no_idle or "no kernel took any time"
    waiting = [(part, ns) for part, ns in parts.items() if part is not Part.COMPUTE]
    if sum(ns for _, ns in waiting) >= WAITS * whole:
        return _waits(waiting)
    if trust.why_few_gaps:
        return "computes, as far as told", trust.why_few_gaps
    return "computes", ""


def _waits(waiting: Sequence[tuple[Part, int]]) -> tuple[str, str]:
    """What is waited for most, or the two of which neither is clearly more."""
    (largest, most_ns), *rest = waiting
    if rest and most_ns < CLEARLY * rest[0][1]:
        return f"waits: {largest} and {rest[0][0]}", ""
    if largest is Part.UNKNOWN:
        return "waits", "the launches that would say why are not in the trace"
    return f"waits: {largest}", ""
