"""How often the method finds a difference between an arm and itself."""

import math
from dataclasses import dataclass
from typing import Final

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
from layerscope.study import CAPTURED

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
    times: pl.DataFrame, base: str, again: str, *, splits: int = 200, seed: int = 0
) -> FalsePositives:
    """How often `compare` finds a difference between an arm and itself.

    A split swaps the labels of the pair in some captures, though not in all and not in
    none; then no true difference is left. Captures are swapped whole, for they are what
    is exchangeable: what a capture fixed holds for all its rounds, and swapping single
    rounds would turn it into noise between rounds, which no rule takes for a
    difference. The noise floor is that of the arms as they were measured. Anchor phase,
    captured graphs.

    K captures have ``2 ** (K - 1) - 1`` such splits, not counting mirror images: 127
    for eight. Where that is no more than `splits`, each is judged once, and the shares
    are exact; else so many are drawn at random. The share by the interval is what can
    tell a wrong interval; that by the whole rule is near 0, for the floor is the bound
    of the same captures.

    Args:
        times: from `pass_times`.
        base: an arm.
        again: the same one, captured again.
        splits: how many to judge, at most.
        seed: fixes what is drawn at random.
    """
    chosen = times.filter(pl.col("experiment") == CAPTURED, pl.col("phase") == ANCHOR)
    pairs = pair_rounds(chosen, base, again)
    captures = pairs["capture"].n_unique()
    if captures < MIN_CAPTURES or pairs.height < MIN_PAIRS:
        return FalsePositives(math.nan, math.nan, 0)
    floor_ns, draw = floor_of(pairs), np.random.default_rng(seed)
    place = pairs["capture"].rank("dense").to_numpy().astype(np.int64) - 1
    masks = _masks(captures, splits, draw)
    by_interval = by_verdict = 0
    for split, mask in enumerate(masks):
        signs = pl.Series((1 - 2 * (mask >> np.arange(captures) & 1))[place])
        swapped = pairs.with_columns(pl.col("change_ns") * signs)
        found = estimate(swapped, "change_ns", seed=split, resamples=_RESAMPLES)
        verdict, _ = verdict_on(found, captures, floor_ns)
        by_interval += not found.low <= 0 <= found.high
        by_verdict += verdict is not Verdict.NO_DIFFERENCE
    judged = len(masks)
    return FalsePositives(by_interval / judged, by_verdict / judged, judged)


def _masks(
    captures: int, splits: int, draw: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Bit masks of the captures to swap: never none, and never the last."""
    distinct = 2 ** (captures - 1) - 1
    if distinct <= splits:
        return np.arange(1, distinct + 1)
    return draw.integers(1, distinct, size=splits, endpoint=True)
