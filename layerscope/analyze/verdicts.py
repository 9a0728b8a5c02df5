"""What the paired rounds of two arms say: a difference, and whether it counts as one.

A verdict needs captures enough to show how much captures differ, rounds enough for an
interval, and a difference beyond both the interval and the noise floor. Without them
it is `unknown` or `no difference`, with the reason.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import polars as pl

from layerscope.analyze.bootstrap import Estimate, estimate, middle

MIN_CAPTURES: Final = 3
"""Captures below which there is no verdict: two show hardly how much they differ."""

MIN_PAIRS: Final = 6
"""Pairs below which there is no verdict: all of five agree by chance 1 time in 16."""


class Verdict(StrEnum):
    """What a comparison says of the other arm against the base."""

    FASTER = "faster"
    SLOWER = "slower"
    NO_DIFFERENCE = "no difference"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two arms against each other; negative means that the other is faster."""

    difference: Estimate
    """Other minus base, in ns."""

    relative: float
    """The difference over the base's time in the same rounds; NaN where that is 0."""

    verdict: Verdict

    reason: str
    """Why there is no difference or no verdict, or what it lacks; may be empty."""


def pair_rounds(times: pl.DataFrame, base: str, other: str) -> pl.DataFrame:
    """The rounds that both arms ran.

    Args:
        times: columns arm, capture, round (unique together) and pass_ns.
        base: the arm compared with.
        other: the arm compared.

    Returns:
        Columns capture, round, base_ns and change_ns (other minus base), sorted.
    """
    bases, others = (
        times.filter(pl.col("arm") == arm).select("capture", "round", "pass_ns")
        for arm in (base, other)
    )
    return (
        bases.join(others, on=["capture", "round"], suffix="_other")
        .select(
            "capture",
            "round",
            base_ns="pass_ns",
            change_ns=pl.col("pass_ns_other") - pl.col("pass_ns"),
        )
        .sort("capture", "round")
    )


def floor_of(pairs: pl.DataFrame) -> float:
    """How far from zero the 95 % interval of `pairs` reaches, in ns.

    Infinite of fewer than `MIN_CAPTURES` captures.

    Args:
        pairs: from `pair_rounds`, of an arm and itself.
    """
    if pairs["capture"].n_unique() < MIN_CAPTURES:
        return math.inf
    found = estimate(pairs, "change_ns")
    return max(-found.low, found.high)


def judge(pairs: pl.DataFrame, floor_ns: float, note: str = "") -> Comparison:
    """The comparison of two arms.

    Args:
        pairs: from `pair_rounds`.
        floor_ns: a difference up to it is none.
        note: the reason to give with a clear verdict.
    """
    found = estimate(pairs, "change_ns")
    base_ns = middle(pairs, "base_ns")
    relative = found.value / base_ns if base_ns else math.nan
    verdict, reason = verdict_on(found, pairs["capture"].n_unique(), floor_ns)
    return Comparison(found, relative, verdict, reason or note)


def verdict_on(found: Estimate, captures: int, floor_ns: float) -> tuple[Verdict, str]:
    """The verdict on a difference, and why it is not clear; empty where it is.

    Args:
        found: the difference.
        captures: how many it is from.
        floor_ns: a difference up to it is none.
    """
    if captures < MIN_CAPTURES:
        return Verdict.UNKNOWN, f"needs {MIN_CAPTURES} captures, has {captures}"
    if found.samples < MIN_PAIRS:
        return Verdict.UNKNOWN, f"needs {MIN_PAIRS} rounds, has {found.samples}"
    if not math.isfinite(floor_ns):
        return Verdict.UNKNOWN, "too few A/A captures to know the noise floor"
    if found.low <= 0 <= found.high:
        return Verdict.NO_DIFFERENCE, "the interval includes zero"
    if abs(found.value) <= floor_ns:
        return Verdict.NO_DIFFERENCE, "within the noise floor"
    return (Verdict.FASTER if found.value < 0 else Verdict.SLOWER), ""
