"""What limits an arm: where the time of its pass goes that could be had back."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import polars as pl

from layerscope.analyze.early_starts import EarlyStart, early_starts
from layerscope.analyze.pass_parts import (
    Limits,
    RecordedPass,
    furthest_region,
    limits,
    recorded_pass,
)
from layerscope.analyze.statistics import anchor_ns
from layerscope.analyze.swept import SweptRun
from layerscope.experiment import CAPTURED

NEAR_ONE_READ: Final = 1.25
"""Anchor over one read of all required bytes up to which only fewer bytes help: of an
H200's layers, the best legal order is at 1.09 to 1.30 where bytes are most of it."""

NEAR_LEGAL: Final = 1.10
"""Anchor over the legal early start up to which the order of kernels is as good as it
may be: bounds hold to some per cent, and two machines of one kind differ by as much."""

MOST: Final = 2.0
"""Anchor over one read up to which bytes are most of it. Beyond that, an arm near the
legal early start spends more on order than on bytes: fewer kernels would help. On an
H200, that order takes 1.9 times one read where the bytes are few."""

CLEARLY: Final = 1.25
"""How far the largest part must exceed the next: parts are known to some per cent of
the pass, and of two that are near each other neither comes first."""


class Limit(StrEnum):
    """What an arm is limited by."""

    MEMORY = "memory"
    WAITING = "waiting"
    LAUNCHES = "launches"
    COMPUTE = "compute"
    COMMUNICATION = "communication"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What limits an arm, and the numbers that say so; times in ns a pass."""

    limit: Limit
    reason: str = ""
    """Why there is no clear limit; empty where there is."""

    anchor_ns: float
    parts: dict[Limit, float]
    """Of the profiled pass, largest first; they add up to it. Without calibrated reads,
    memory and compute are not told apart, and both are under `Limit.UNKNOWN`."""

    recorded: RecordedPass | None
    limits: Limits
    furthest: str
    """The region that takes most beyond the read of its required bytes."""

    early: tuple[EarlyStart, ...]
    """Kernels behind programmatic edges."""


def diagnosis_of(swept: SweptRun, arm: str) -> Diagnosis:
    """What limits `arm`; `Limit.UNKNOWN` with a reason where nothing is clear.

    It is memory where the anchor is near one read of its bytes, or, if that read is
    most of it, near the legal early start of the standard chain. Else the largest part
    decides, if it clearly exceeds the next:

    - communication: kernels named after collectives, where ranks are real;
    - waiting, where edges are programmatic: gaps before kernels behind such edges, and
      overlap that is not realised: what legal early starts would save less what the
      arm's save, or, where no bounds were measured, waits inside kernels that nothing
      else hides;
    - launches: all other gaps, and kernels no longer than the smallest cold read;
    - memory: one read of the bytes that a pass requires;
    - compute: the rest.

    Args:
        swept: what holds the arm.
        arm: which one.
    """
    header = swept.header
    nodes = header.programmatic.get(arm, [])
    recorded, held = recorded_pass(swept, arm), limits(swept, arm)
    pass_ns = anchor_ns(swept.times, arm)
    parts = {} if recorded is None else _parts(recorded, held, has_early=bool(nodes))
    limit, reason = _limit(parts, pass_ns, held)
    if header.environment.device.type == "cpu":
        limit, reason = Limit.UNKNOWN, "on a CPU, operators stand for kernels"
    captured = swept.run.kernels.filter(
        pl.col("arm") == arm, pl.col("experiment") == CAPTURED
    )
    return Diagnosis(
        limit=limit,
        reason=reason,
        anchor_ns=pass_ns,
        parts=parts,
        recorded=recorded,
        limits=held,
        furthest=furthest_region(swept, arm),
        early=early_starts(captured, nodes, header.environment.device),
    )


def _parts(
    recorded: RecordedPass, held: Limits, *, has_early: bool
) -> dict[Limit, float]:
    """The profiled pass by what could give it back, largest first."""
    left_ns, waiting_ns = recorded.working_ns, 0.0
    if has_early:
        waiting_ns = min(left_ns, _not_realised(held))
    left_ns -= waiting_ns
    parts = {
        Limit.WAITING: recorded.programmatic_gap_ns + waiting_ns,
        Limit.LAUNCHES: recorded.launch_gap_ns + recorded.short_ns,
        Limit.COMMUNICATION: recorded.talking_ns,
    }
    if held.one_read_ns is None:
        parts[Limit.UNKNOWN] = left_ns
    else:
        parts[Limit.MEMORY] = min(left_ns, held.one_read_ns)
        parts[Limit.COMPUTE] = left_ns - parts[Limit.MEMORY]
    return dict(sorted(parts.items(), key=lambda part: -part[1]))


def _not_realised(held: Limits) -> float:
    """Overlap that an arm with programmatic edges could have and has not, in ns."""
    if held.promised_ns is not None and held.benefit_ns is not None:
        return max(0.0, held.promised_ns - held.benefit_ns)
    return held.exposed_wait_ns or 0.0


def _limit(
    parts: dict[Limit, float], anchor_ns: float, held: Limits
) -> tuple[Limit, str]:
    """The limit, or why none is clear."""
    if _is_near(anchor_ns, held.one_read_ns, NEAR_ONE_READ) or (
        _is_near(anchor_ns, held.legal_ns, NEAR_LEGAL)
        and _is_near(anchor_ns, held.one_read_ns, MOST)
    ):
        return Limit.MEMORY, ""
    if not parts:
        return Limit.UNKNOWN, "no kernels were recorded"
    (largest, most_ns), (_, next_ns), *_ = parts.items()
    if largest is Limit.UNKNOWN:
        return Limit.UNKNOWN, "without calibrated reads, bytes and work look alike"
    if most_ns < CLEARLY * next_ns:
        return Limit.UNKNOWN, "no part of the pass is clearly the largest"
    return largest, ""


def _is_near(anchor_ns: float, bound_ns: float | None, factor: float) -> bool:
    return bound_ns is not None and anchor_ns <= factor * bound_ns
