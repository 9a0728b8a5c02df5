"""How often the method finds a difference between an arm and itself."""

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from layerscope.analyze.bootstrap import estimate
from layerscope.analyze.statistics import ANCHOR
from layerscope.analyze.verdicts import (
    MIN_CAPTURES,
    MIN_PAIRS,
    Verdict,
    floor_of,
    pair_rounds,
    verdict_on,
)
from layerscope.experiment import CAPTURED

_RESAMPLES: Final = 1000


@dataclass(frozen=True, slots=True)
class FalsePositives:
    """How often two arms that are the same were called different."""

    interval: float
    """Share of splits whose interval excludes zero; NaN where no verdict is given."""

    verdict: float
    """Share of splits that `compare` would call faster or slower; likewise."""

    splits: int
    """How many were judged."""


def false_positive_rate(
    times: pl.DataFrame,
    base: str,
    again: str,
    *,
    unit: Literal["capture", "round"] = "capture",
    splits: int = 200,
    seed: int = 0,
) -> FalsePositives:
    """How often `compare` finds a difference between an arm and itself.

    A split swaps the labels of the pair in some units, though not in all and not in
    none; then no true difference is left. Captures swapped whole are the harder test:
    what a capture fixed holds for all its rounds, and an interval that is blind to that
    is found out. Rounds swapped one by one turn it into noise between rounds, and test
    the interval within captures. The noise floor is that of the arms as they were
    measured. Anchor phase, captured graphs.

    K units have ``2 ** (K - 1) - 1`` such splits, not counting mirror images: 127 for
    eight captures. Where that is no more than `splits`, each is judged once, and the
    shares are exact; else so many are drawn at random. The share by the interval is
    what can tell a wrong interval; that by the whole rule is near 0, for the floor is
    the bound of the same captures.

    Args:
        times: from `pass_times`.
        base: an arm.
        again: the same one, captured again.
        unit: what is swapped as a whole.
        splits: how many to judge, at most.
        seed: fixes what is drawn at random.
    """
    chosen = times.filter(pl.col("experiment") == CAPTURED, pl.col("phase") == ANCHOR)
    pairs = pair_rounds(chosen, base, again)
    captures = pairs["capture"].n_unique()
    if captures < MIN_CAPTURES or pairs.height < MIN_PAIRS:
        return FalsePositives(math.nan, math.nan, 0)
    floor_ns, draw = floor_of(pairs), np.random.default_rng(seed)
    keys = ["capture"] if unit == "capture" else ["capture", "round"]
    place = pairs.select(pl.struct(keys).rank("dense")).to_series().to_numpy() - 1
    all_signs = _signs(int(place.max()) + 1, splits, draw)
    by_interval = by_verdict = 0
    for split, signs in enumerate(all_signs):
        swapped = pairs.with_columns(pl.col("change_ns") * pl.Series(signs[place]))
        found = estimate(swapped, "change_ns", seed=split, resamples=_RESAMPLES)
        verdict, _ = verdict_on(found, captures, floor_ns)
        by_interval += not found.low <= 0 <= found.high
        by_verdict += verdict is not Verdict.NO_DIFFERENCE
    judged = len(all_signs)
    return FalsePositives(by_interval / judged, by_verdict / judged, judged)


def _signs(units: int, splits: int, draw: np.random.Generator) -> npt.NDArray[np.int64]:
    """One row a split, 1 or -1 for each unit, not all of them equal."""
    distinct = 2 ** (units - 1) - 1
    if distinct <= splits:
        masks = np.arange(1, distinct + 1)[:, None]
        every: npt.NDArray[np.int64] = 1 - 2 * (masks >> np.arange(units) & 1)
        return every
    signs = draw.choice(np.array([-1, 1]), size=(splits, units))
    signs[(signs == signs[:, :1]).all(axis=1), 0] *= -1
    return signs
