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

_RESAMPLES: Final = 500


@dataclass(frozen=True, slots=True)
class FalsePositives:
    """How often two arms that are the same were called different."""

    interval: float
    """Share of splits whose interval excludes zero; NaN where no verdict is given."""

    verdict: float
    """Share of splits that `compare` would call faster or slower; likewise."""

    splits: int


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

    K captures have ``2 ** (K - 1) - 1`` such splits, not counting mirror images, so the
    shares come in steps of that: of 1 / 127 for eight.

    Args:
        times: from `pass_times`.
        base: an arm.
        again: the same one, captured again.
        splits: how many times to swap and judge.
        seed: fixes the swaps.
    """
    chosen = times.filter(pl.col("experiment") == CAPTURED, pl.col("phase") == ANCHOR)
    pairs = pair_rounds(chosen, base, again)
    captures = pairs["capture"].n_unique()
    if captures < MIN_CAPTURES or pairs.height < MIN_PAIRS:
        return FalsePositives(math.nan, math.nan, splits)
    floor_ns, draw = floor_of(pairs), np.random.default_rng(seed)
    place = pairs["capture"].rank("dense").to_numpy().astype(np.int64) - 1
    by_interval = by_verdict = 0
    for split in range(splits):
        signs = pl.Series(_signs(captures, draw)[place])
        swapped = pairs.with_columns(pl.col("change_ns") * signs)
        found = estimate(swapped, "change_ns", seed=split, resamples=_RESAMPLES)
        verdict, _ = verdict_on(found, captures, floor_ns)
        by_interval += not found.low <= 0 <= found.high
        by_verdict += verdict is not Verdict.NO_DIFFERENCE
    return FalsePositives(by_interval / splits, by_verdict / splits, splits)


def _signs(count: int, draw: np.random.Generator) -> npt.NDArray[np.int64]:
    """`count` random signs, not all of them equal."""
    mask = draw.integers(1, 2**count - 1)
    signs: npt.NDArray[np.int64] = 1 - 2 * (mask >> np.arange(count) & 1)
    return signs
