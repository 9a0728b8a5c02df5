"""From the times of two arms to a difference with an interval, and to a verdict.

Every comparison is of pairs: rounds that both arms ran, in the same capture. Unequal
numbers of samples can therefore widen an interval, never make a difference.
"""

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np
import polars as pl

from layerscope.analyze.bootstrap import Estimate, estimate
from layerscope.analyze.pass_times import incomplete_rounds, linearity, pass_times
from layerscope.study import AA_SUFFIX, CAPTURED

__all__ = [
    "ANCHOR",
    "MIN_ROUNDS",
    "Comparison",
    "Estimate",
    "FalsePositives",
    "Verdict",
    "anchor",
    "compare",
    "estimate",
    "false_positive_rate",
    "incomplete_rounds",
    "linearity",
    "noise_floor",
    "paired",
    "pass_times",
    "share_changes",
]

ANCHOR: Final = "anchor"
"""The phase of the replays that ran before any profiler was attached."""

MIN_ROUNDS: Final = 6
"""Pairs below which there is no verdict: all of five agree by chance 1 time in 16."""

_SPLIT_RESAMPLES: Final = 500


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


@dataclass(frozen=True, slots=True)
class FalsePositives:
    """How often two arms that are the same were called different."""

    interval: float
    """Share of splits whose interval excludes zero; NaN of too few rounds."""

    floor: float
    """Share of splits that the noise floor does not stop either; likewise."""

    splits: int


def anchor(
    times: pl.DataFrame,
    arm: str,
    *,
    experiment: str = CAPTURED,
    phase: str = ANCHOR,
) -> Estimate:
    """The time of a pass of `arm`, in ns, over all its rounds.

    Args:
        times: from `pass_times`.
        arm: which one.
        experiment: which of its graphs.
        phase: which of the two blocks of replays.
    """
    chosen = _of(times, experiment, phase)
    return estimate(chosen.filter(pl.col("arm") == arm), "pass_ns")


def paired(
    times: pl.DataFrame,
    base: str,
    other: str,
    *,
    experiment: str = CAPTURED,
    phase: str = ANCHOR,
) -> Estimate:
    """The difference `other` - `base` in ns, over the rounds that both ran.

    Its value is the middle of the differences, which need not be the difference of the
    two anchors' middles. Arguments are those of `anchor`.
    """
    return estimate(_pairs(_of(times, experiment, phase), base, other), "change_ns")


def noise_floor(
    times: pl.DataFrame,
    base: str,
    again: str,
    *,
    experiment: str = CAPTURED,
    phase: str = ANCHOR,
) -> float:
    """The upper bound, in ns, of the difference between an arm and itself.

    It is how far from zero the 95 % interval over captures of the paired A/A difference
    reaches: what a difference of two arms, estimated from as many captures, can be
    without any cause. One capture alone may differ by more, for memory is placed anew
    in each. Infinite where fewer than two rounds are paired. Arguments are those of
    `anchor`.
    """
    return _floor(_pairs(_of(times, experiment, phase), base, again))


def compare(
    times: pl.DataFrame,
    base: str,
    other: str,
    floor_ns: float,
    *,
    experiment: str = CAPTURED,
    phase: str = ANCHOR,
) -> Comparison:
    """`other` against `base`: no difference unless interval and noise floor agree.

    Args:
        times: from `pass_times`.
        base: the arm compared with.
        other: the arm judged.
        floor_ns: from `noise_floor`; a difference up to it is none.
        experiment: which of the arms' graphs.
        phase: which of the two blocks of replays.
    """
    return _judge(_pairs(_of(times, experiment, phase), base, other), floor_ns)


def false_positive_rate(
    times: pl.DataFrame, base: str, again: str, *, splits: int = 200, seed: int = 0
) -> FalsePositives:
    """How often this method finds a difference between an arm and itself.

    In every split, each round swaps the labels of the pair at random, so that no true
    difference is left; the rest is judged as `compare` would, in the anchor phase of
    the captured graphs.

    Args:
        times: from `pass_times`.
        base: an arm.
        again: the same one, captured again.
        splits: how many times to swap and judge.
        seed: fixes the swaps.
    """
    pairs = _pairs(_of(times, CAPTURED, ANCHOR), base, again)
    if pairs.height < MIN_ROUNDS:
        return FalsePositives(math.nan, math.nan, splits)
    floor_ns, draw = _floor(pairs), np.random.default_rng(seed)
    by_interval = by_both = 0
    for split in range(splits):
        signs = pl.Series(draw.choice((-1.0, 1.0), size=pairs.height))
        swapped = pairs.with_columns(pl.col("change_ns") * signs)
        found = estimate(swapped, "change_ns", seed=split, resamples=_SPLIT_RESAMPLES)
        differs = not found.low <= 0 <= found.high
        by_interval += differs
        by_both += differs and abs(found.value) > floor_ns
    return FalsePositives(by_interval / splits, by_both / splits, splits)


def share_changes(
    shares: pl.DataFrame, base: str, other: str, *, experiment: str = CAPTURED
) -> dict[str, Comparison]:
    """`other` against `base`, region by region, in ns of mean share a pass.

    The difference is paired by round. Each region has its own noise floor, from the
    arm that was captured again; without such an arm the interval alone decides, and
    the reason says so.

    Args:
        shares: `schema.PASS_SHARES`.
        base: the arm compared with.
        other: the arm judged.
        experiment: which of the arms' graphs.
    """
    chosen = shares.filter(pl.col("experiment") == experiment)
    arms = chosen["arm"].unique().sort()
    again = next((arm for arm in arms if arm.endswith(AA_SUFFIX)), None)
    changes = {}
    parts = _round_shares(chosen).partition_by("region", as_dict=True)
    for (region,), part in sorted(parts.items()):
        pairs = _pairs(part, base, other)
        if again is None:
            changes[region] = _judge(
                pairs, 0.0, "no A/A arm: the interval alone decides"
            )
        else:
            floor_ns = _floor(_pairs(part, again.removesuffix(AA_SUFFIX), again))
            changes[region] = _judge(pairs, floor_ns)
    return changes


def _round_shares(shares: pl.DataFrame) -> pl.DataFrame:
    """Mean share a pass: (arm, capture, round, region, pass_ns); zero where none."""
    key = ("arm", "capture", "round")
    passes = shares.group_by(key).agg(
        passes=pl.struct("replay", "pass_index").n_unique()
    )
    sums = shares.group_by(*key, "region").agg(pl.col("share_ns").sum())
    regions = shares.select("region").unique().sort("region")
    mean = pl.col("share_ns").fill_null(0) / pl.col("passes")
    return (
        passes.join(regions, how="cross")
        .join(sums, on=[*key, "region"], how="left")
        .select(*key, "region", pass_ns=mean)
    )


def _of(times: pl.DataFrame, experiment: str, phase: str) -> pl.DataFrame:
    return times.filter(
        pl.col("experiment") == experiment, pl.col("phase") == phase
    ).select("arm", "capture", "round", "pass_ns")


def _pairs(times: pl.DataFrame, base: str, other: str) -> pl.DataFrame:
    """Rounds that both arms ran: (capture, round, base_ns, change_ns)."""
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


def _floor(pairs: pl.DataFrame) -> float:
    found = estimate(pairs, "change_ns")
    return max(-found.low, found.high)


def _judge(pairs: pl.DataFrame, floor_ns: float, note: str = "") -> Comparison:
    found = estimate(pairs, "change_ns")
    base_ns = estimate(pairs, "base_ns").value
    relative = found.value / base_ns if base_ns else math.nan
    if found.samples < MIN_ROUNDS:
        verdict = Verdict.UNKNOWN
        note = f"{found.samples} rounds in common, needs {MIN_ROUNDS}"
    elif not math.isfinite(floor_ns):
        verdict, note = Verdict.UNKNOWN, "too few A/A rounds to know the noise floor"
    elif found.low <= 0 <= found.high:
        verdict, note = Verdict.NO_DIFFERENCE, "the interval includes zero"
    elif abs(found.value) <= floor_ns:
        verdict, note = Verdict.NO_DIFFERENCE, "within the noise floor"
    else:
        verdict = Verdict.FASTER if found.value < 0 else Verdict.SLOWER
    return Comparison(found, relative, verdict, note)
