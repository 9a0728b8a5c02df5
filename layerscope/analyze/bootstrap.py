"""Estimates with an interval, from rounds measured within a few captures.

Rounds of one capture are neighbours in time and share what the capture fixed (where
buffers lie, how a graph was instantiated). So rounds are not independent samples: the
bootstrap draws captures, then blocks of consecutive rounds within each.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl
from numpy.lib.stride_tricks import sliding_window_view

from layerscope.analyze.student import t_quantile

Floats: TypeAlias = npt.NDArray[np.float64]

RESAMPLES: Final = 2000
LEVEL: Final = 0.95

_NORMAL_QUANTILE: Final = NormalDist().inv_cdf((1 + LEVEL) / 2)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number, its 95 % interval, and how many samples stand behind it."""

    value: float
    """Median over the rounds of a capture, mean over captures; NaN of no rounds."""

    low: float
    """Lower end of the interval; minus infinity of fewer than two rounds."""

    high: float
    """Upper end of the interval; infinity of fewer than two rounds."""

    samples: int
    """Rounds."""

    effective: float
    """Independent rounds that would carry as much, had all been of one capture.

    At most `samples`. What captures differ by is in the interval, not in this.
    """


def estimate(
    rounds: pl.DataFrame, column: str, *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """The estimate of `column`, from one row a round.

    Args:
        rounds: columns ``capture`` and ``round`` (unique together) and `column`.
        column: any numeric column; the estimate has its unit.
        seed: fixes the resamples, so equal input gives an equal interval.
        resamples: number of bootstrap resamples.
    """
    return bootstrap(_captures(rounds, column), seed=seed, resamples=resamples)


def middle(rounds: pl.DataFrame, column: str) -> float:
    """The value of `estimate` by itself, for who needs no interval.

    Args:
        rounds: as there.
        column: likewise.
    """
    if rounds.is_empty():
        return math.nan
    return float(_medians(_captures(rounds, column)).mean())


def bootstrap(
    captures: Sequence[Floats], *, seed: int = 0, resamples: int = RESAMPLES
) -> Estimate:
    """The mean over captures of the median over rounds, with a 95 % interval.

    Every resample draws as many captures as there are, with replacement, and for each
    of them moving blocks of consecutive rounds (Künsch 1989); the interval is the
    percentiles of the resampled statistic.

    A bootstrap of K captures sees too little of their spread: its variance is short by
    (K - 1) / K, and its tails are a normal's. With K = 3, it would cover the truth 75
    times of 100. So the part of each resample that comes from drawing captures is
    stretched by ``sqrt(K / (K - 1)) * t / z``, the 97.5 % quantiles of Student's t with
    K - 1 degrees of freedom and of the normal (Hesterberg 2015, "What Teachers Should
    Know About the Bootstrap", the expanded percentile interval).

    One capture tells nothing of others: its interval holds for that capture alone, and
    is stretched as above with the number of its blocks as K.

    Args:
        captures: one array a capture, its values in the order of rounds.
        seed: fixes the resamples.
        resamples: number of bootstrap resamples.
    """
    captures = [values for values in captures if values.size]
    samples = sum(values.size for values in captures)
    if not samples:
        return Estimate(math.nan, -math.inf, math.inf, 0, 0.0)
    medians = _medians(captures)
    value = float(medians.mean())
    effective = sum(effective_size(values) for values in captures)
    if samples == 1:
        return Estimate(value, -math.inf, math.inf, samples, effective)
    if not any(values.any() for values in captures):
        return Estimate(value, value, value, samples, effective)  # no resample differs
    draw = np.random.default_rng(seed)
    chosen = draw.integers(len(captures), size=(resamples, len(captures)))
    within = np.zeros(chosen.shape)
    for index, values in enumerate(captures):
        places = chosen == index
        resampled = _resampled_medians(values, int(places.sum()), draw)
        within[places] = resampled - medians[index]
    between = medians[chosen].mean(axis=1) - value
    spread = within.mean(axis=1)
    if len(captures) == 1:
        spread *= _stretch(samples // _block_length(captures[0]))
    else:
        spread += _stretch(len(captures)) * between
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(spread, (tail, 1 - tail))
    return Estimate(value, value + float(low), value + float(high), samples, effective)


def effective_size(values: Floats) -> float:
    """Independent samples that fix a mean as well as `values` do, in their order.

    ``n / (1 + 2 * sum(autocorrelation))`` over the lags before the first one whose
    autocorrelation is not positive (Geyer 1992 on truncation); at most n.
    """
    centred = values - values.mean()
    variance = float(centred @ centred)
    if variance == 0.0:
        return float(values.size)
    total = 0.0
    for lag in range(1, values.size):
        correlation = float(centred[:-lag] @ centred[lag:]) / variance
        if correlation <= 0.0:
            break
        total += correlation
    return values.size / (1 + 2 * total)


def independent_difference(one: Estimate, other: Estimate) -> Estimate:
    """`one` minus `other`, two estimates from captures that are not the same.

    Nothing is paired, so the errors of the two add up as independent ones do: on either
    side, the half-width of the interval is the root of the sum of the two squared
    half-widths (Zou and Donner 2008, "Construction of confidence limits about effect
    measures"). It has the fewer samples of the two.
    """
    value = one.value - other.value
    return Estimate(
        value=value,
        low=value - math.hypot(one.value - one.low, other.high - other.value),
        high=value + math.hypot(one.high - one.value, other.value - other.low),
        samples=min(one.samples, other.samples),
        effective=min(one.effective, other.effective),
    )


def prediction_bound(values: Floats, level: float = LEVEL) -> float:
    """How far one more value may lie from the mean of `values`, without any cause.

    Half the prediction interval, ``t * s * sqrt(1 + 1 / n)`` with Student's t of n - 1
    degrees of freedom. Infinite of fewer than two values.

    Args:
        values: independent, such as one a capture.
        level: how likely one more value is within the bound.
    """
    if values.size < 2:  # noqa: PLR2004 (a spread needs two)
        return math.inf
    spread = float(values.std(ddof=1)) * math.sqrt(1 + 1 / values.size)
    return t_quantile(int(values.size) - 1, level) * spread


def _captures(rounds: pl.DataFrame, column: str) -> list[Floats]:
    """The values of every capture, in the order of rounds."""
    numbers = rounds["capture"].to_numpy()
    order = np.lexsort((rounds["round"].to_numpy(), numbers))
    values = rounds[column].to_numpy().astype(np.float64)[order]
    return np.split(values, np.flatnonzero(np.diff(numbers[order])) + 1)


def _medians(captures: Sequence[Floats]) -> Floats:
    return np.array([np.median(values) for values in captures])


def _resampled_medians(values: Floats, count: int, draw: np.random.Generator) -> Floats:
    """Medians of `count` moving-block resamples of `values`."""
    block = _block_length(values)
    blocks = -(-values.size // block)
    starts = draw.integers(values.size - block + 1, size=(count, blocks))
    ordered = np.sort(values)
    # ranks, for small integers sort in less time than floats
    ranks = np.searchsorted(ordered, values).astype(np.int32)
    drawn = sliding_window_view(ranks, block)[starts].reshape(count, -1)
    drawn = np.sort(drawn[:, : values.size], axis=1)
    lower, upper = drawn[:, (values.size - 1) // 2], drawn[:, values.size // 2]
    medians: Floats = (ordered[lower] + ordered[upper]) / 2
    return medians


def _block_length(values: Floats) -> int:
    """Cube root of the rounds, or their correlation time if longer, up to a half."""
    size = int(values.size)
    wanted = max(math.cbrt(size), size / effective_size(values))
    return max(1, min(math.ceil(wanted), size // 2))


def _stretch(units: int) -> float:
    """What an interval from `units` resampled units lacks in width; over 1."""
    freedom = units - 1
    return math.sqrt(units / freedom) * t_quantile(freedom, LEVEL) / _NORMAL_QUANTILE
