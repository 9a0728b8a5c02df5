"""An arm of one run against an arm of another: nothing is paired between them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import polars as pl

from layerscope.analyze.bootstrap import Estimate, independent_difference
from layerscope.analyze.clocks import clock_doubt
from layerscope.analyze.statistics import (
    ANCHOR,
    Comparison,
    Verdict,
    anchor,
    noise_floor,
    pass_times,
)
from layerscope.analyze.verdicts import verdict_on
from layerscope.experiment import CAPTURED
from layerscope.run import Run

GATE_CAPTURES: Final = 5
"""Captures below which a gate does not judge: unpaired, their spread is all there is
to tell a regression from where memory happened to lie."""

WIDE: Final = "the interval reaches beyond what is allowed"
"""Why a pass shows less than it seems: a regression was not found, nor ruled out."""

_WITHIN: Final = "not slower by more than is allowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AcrossRuns:
    """An arm of another run against an arm of a base run; times in ns."""

    base_arm: str
    other_arm: str

    base: Estimate
    """The anchor of the base; NaN and no samples where it was not measured."""

    other: Estimate
    """The anchor of the other."""

    comparison: Comparison
    """Other minus base."""

    floor_ns: float
    """The larger noise floor of the two runs."""

    captures: int
    """The fewer captures of the two."""


class Outcome(StrEnum):
    """What a gate says."""

    PASS = "pass"  # noqa: S105 (no password)
    FAIL = "fail"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """Whether an arm is slower than it was, by more than is allowed."""

    across: AcrossRuns
    allowed: float
    """The regression that is allowed, as a fraction of the base."""

    outcome: Outcome

    reason: str
    """Why the outcome is what it is."""


def across(base_run: Run, other_run: Run, base_arm: str, other_arm: str) -> AcrossRuns:
    """`other_arm` of `other_run` against `base_arm` of `base_run`, by their anchors.

    The errors of the two are independent (see `independent_difference`). There is a
    verdict only beyond the noise floors of both runs, and none where clocks differ.

    Args:
        base_run: what is compared with.
        other_run: what is compared.
        base_arm: an arm of `base_run`.
        other_arm: an arm of `other_run`.
    """
    base, base_floor_ns, base_captures = _measured(base_run, base_arm)
    other, other_floor_ns, other_captures = _measured(other_run, other_arm)
    found = independent_difference(other, base)
    floor_ns = max(base_floor_ns, other_floor_ns)
    captures = min(base_captures, other_captures)
    verdict, reason = verdict_on(found, captures, floor_ns)
    both = (
        _anchor_rows(base_run, base_arm).with_columns(arm=pl.lit("the base")),
        _anchor_rows(other_run, other_arm).with_columns(arm=pl.lit("the other run")),
    )
    doubt = clock_doubt(pl.concat(both))
    if doubt:
        verdict, reason = Verdict.UNKNOWN, doubt
    return AcrossRuns(
        base_arm=base_arm,
        other_arm=other_arm,
        base=base,
        other=other,
        comparison=Comparison(found, found.value / base.value, verdict, reason),
        floor_ns=floor_ns,
        captures=captures,
    )


def gate(found: AcrossRuns, allowed: float) -> Gate:
    """Whether `found` is a regression beyond `allowed`.

    It fails only on a regression whose interval excludes zero and whose size exceeds
    both what is allowed and the noise floors. One that is larger than allowed, and yet
    not beyond noise, is unknown, as is everything where there are too few captures or
    clocks differ. A pass whose interval reaches beyond what is allowed says so.

    Args:
        found: from `across`.
        allowed: a fraction of the base's time, such as 0.02.
    """
    comparison = found.comparison
    if found.captures < GATE_CAPTURES:
        reason = f"needs {GATE_CAPTURES} captures of both, has {found.captures}"
        return _gate(found, allowed, Outcome.UNKNOWN, reason)
    if comparison.verdict is Verdict.UNKNOWN:
        return _gate(found, allowed, Outcome.UNKNOWN, comparison.reason)
    if comparison.relative <= allowed:
        is_wide = comparison.difference.high > allowed * found.base.value
        return _gate(found, allowed, Outcome.PASS, WIDE if is_wide else _WITHIN)
    if comparison.verdict is not Verdict.SLOWER:
        reason = f"slower by more than is allowed, but {comparison.reason}"
        return _gate(found, allowed, Outcome.UNKNOWN, reason)
    return _gate(found, allowed, Outcome.FAIL, "slower by more than is allowed")


def _gate(found: AcrossRuns, allowed: float, outcome: Outcome, reason: str) -> Gate:
    return Gate(across=found, allowed=allowed, outcome=outcome, reason=reason)


def _measured(run: Run, arm: str) -> tuple[Estimate, float, int]:
    """The anchor of an arm, the noise floor of its run in ns, and its captures."""
    first, *_, again = (each.name for each in run.header.study.all_arms)
    times = pass_times(run.samples)
    captures = _anchor_rows(run, arm)["capture"].n_unique()
    return anchor(times, arm), noise_floor(times, first, again), captures


def _anchor_rows(run: Run, arm: str) -> pl.DataFrame:
    """The samples behind the anchor of an arm."""
    return run.samples.filter(
        pl.col("arm") == arm,
        pl.col("experiment") == CAPTURED,
        pl.col("phase") == ANCHOR,
    )
