"""From the times of two arms to a difference with an interval, and to a verdict.

Every comparison is of pairs: rounds that both arms ran, in the same capture. Unequal
numbers of samples can therefore widen an interval, never make a difference.
"""

from typing import Final

import polars as pl

from layerscope.analyze.bootstrap import (
    Estimate,
    estimate,
    independent_difference,
    middle,
)
from layerscope.analyze.pass_times import incomplete_rounds, linearity, pass_times
from layerscope.analyze.verdicts import (
    MIN_CAPTURES,
    MIN_PAIRS,
    Comparison,
    Verdict,
    floor_of,
    judge,
    pair_rounds,
)
from layerscope.experiment import CAPTURED
from layerscope.study import AA_SUFFIX

__all__ = [
    "ANCHOR",
    "MIN_CAPTURES",
    "MIN_PAIRS",
    "Comparison",
    "Estimate",
    "Verdict",
    "anchor",
    "anchor_ns",
    "compare",
    "estimate",
    "incomplete_rounds",
    "linearity",
    "noise_floor",
    "observer_effect",
    "paired",
    "pass_times",
    "profiled_pass",
    "share_changes",
]

ANCHOR: Final = "anchor"
"""The phase of the replays that ran before any profiler was attached."""


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


def anchor_ns(
    times: pl.DataFrame,
    arm: str,
    *,
    experiment: str = CAPTURED,
    phase: str = ANCHOR,
) -> float:
    """The value of `anchor` by itself, for who needs no interval; same arguments."""
    chosen = _of(times, experiment, phase)
    return middle(chosen.filter(pl.col("arm") == arm), "pass_ns")


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
    return estimate(
        pair_rounds(_of(times, experiment, phase), base, other), "change_ns"
    )


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
    in each. Infinite of fewer than `MIN_CAPTURES` captures. Arguments are those of
    `anchor`.
    """
    return floor_of(pair_rounds(_of(times, experiment, phase), base, again))


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
    return judge(pair_rounds(_of(times, experiment, phase), base, other), floor_ns)


def observer_effect(
    shares: pl.DataFrame,
    times: pl.DataFrame,
    arm: str,
    *,
    experiment: str = CAPTURED,
) -> Estimate:
    """What the profiler added to a pass of `arm`, in ns.

    The profiled pass is estimated as the anchor is: median over the rounds of a
    capture, here of the mean increment of a round's passes, and mean over captures.
    Anchors and profiled passes are from other captures, so their errors are taken as
    independent (see `independent_difference`).

    Args:
        shares: `schema.PASS_SHARES`.
        times: from `pass_times`.
        arm: which one.
        experiment: which of its graphs.
    """
    return independent_difference(
        profiled_pass(shares, arm, experiment=experiment),
        anchor(times, arm, experiment=experiment),
    )


def profiled_pass(
    shares: pl.DataFrame, arm: str, *, experiment: str = CAPTURED
) -> Estimate:
    """The time of a profiled pass of `arm`, in ns, as `observer_effect` takes it.

    Args:
        shares: `schema.PASS_SHARES`.
        arm: which one.
        experiment: which of its graphs.
    """
    passes = pl.struct("replay", "pass_index").n_unique()
    profiled = (
        shares.filter(pl.col("arm") == arm, pl.col("experiment") == experiment)
        .group_by("capture", "round")
        .agg(pass_ns=pl.col("share_ns").sum() / passes)
    )
    return estimate(profiled, "pass_ns")


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
        pairs = pair_rounds(part, base, other)
        if again is None:
            changes[region] = judge(
                pairs, 0.0, "no A/A arm: the interval alone decides"
            )
        else:
            floor_ns = floor_of(pair_rounds(part, again.removesuffix(AA_SUFFIX), again))
            changes[region] = judge(pairs, floor_ns)
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
