import math

import numpy as np
import polars as pl
import pytest

from layerscope.analyze.bootstrap import (
    Estimate,
    bootstrap,
    effective_size,
    estimate,
    independent_difference,
    prediction_bound,
)


def simulated(
    draw: np.random.Generator, captures: int, between: float, *, rounds: int = 12
) -> list[np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Rounds around 100 with unit noise, and an offset for each capture."""
    offsets = draw.normal(100.0, between, size=captures)
    return [draw.normal(offset, 1.0, size=rounds) for offset in offsets]


def test_rounds_without_noise() -> None:
    """Where all rounds agree, so do the value and both ends of the interval."""
    rounds = pl.DataFrame({"capture": [0, 0, 1], "round": [0, 1, 0], "ns": [7, 7, 7]})
    assert estimate(rounds, "ns") == Estimate(7.0, 7.0, 7.0, samples=3, effective=3.0)


def test_value_is_the_mean_of_medians() -> None:
    """Captures weigh the same however many rounds they have; outliers do not."""
    rounds = pl.DataFrame(
        {"capture": [0, 0, 0, 1], "round": [0, 1, 2, 0], "ns": [1.0, 2.0, 900.0, 4.0]}
    )
    assert estimate(rounds, "ns").value == (2.0 + 4.0) / 2


def test_order_of_rows_is_nothing() -> None:
    """Rows may come in any order; the same seed gives the same interval."""
    values = np.random.default_rng(1).normal(size=40)
    rounds = pl.DataFrame({"round": range(40), "ns": values}).with_columns(
        capture=pl.col("round") % 2
    )
    assert estimate(rounds.reverse(), "ns") == estimate(rounds, "ns")


def test_another_seed_gives_another_interval() -> None:
    """The seed fixes the resamples."""
    captures = simulated(np.random.default_rng(1), 3, 1.0)
    first, second = (bootstrap(captures, seed=seed) for seed in (0, 1))
    assert first.value == second.value
    assert first.low != second.low


def test_no_rounds() -> None:
    """Of no rounds, nothing is known."""
    found = bootstrap([])
    assert math.isnan(found.value)
    assert (found.low, found.high) == (-math.inf, math.inf)
    assert (found.samples, found.effective) == (0, 0.0)


def test_one_round_has_no_interval() -> None:
    """One round says nothing of its own uncertainty."""
    found = bootstrap([np.array([5.0])])
    assert found == Estimate(5.0, -math.inf, math.inf, samples=1, effective=1.0)


@pytest.mark.parametrize(
    ("captures", "between"),
    [(1, 0.0), (2, 1.0), (3, 0.0), (3, 0.5), (3, 5.0), (6, 1.0)],
)
def test_coverage(captures: int, between: float) -> None:
    """At least 90 of 100 intervals hold the truth, with differing captures too."""
    draw = np.random.default_rng(5)
    trials = 300
    hits = 0
    for seed in range(trials):
        found = bootstrap(simulated(draw, captures, between), seed=seed, resamples=500)
        hits += found.low <= 100.0 <= found.high
    assert hits / trials >= 0.90


def test_correlated_rounds_are_covered() -> None:
    """Slow drifts within a single capture widen its interval as they must."""
    draw = np.random.default_rng(5)
    trials = 200
    hits = 0
    for seed in range(trials):
        noise = draw.normal(size=140)
        for at in range(1, noise.size):
            noise[at] += 0.6 * noise[at - 1]
        found = bootstrap([noise[40:]], seed=seed, resamples=500)
        hits += found.low <= 0.0 <= found.high
    assert hits / trials >= 0.85


def test_more_captures_narrow_the_interval() -> None:
    """Captures that differ are paid for by more captures, and not by more rounds."""
    draw = np.random.default_rng(2)

    def width(captures: int, rounds: int) -> float:
        found = [
            bootstrap(simulated(draw, captures, 1.0, rounds=rounds), resamples=500)
            for _ in range(40)
        ]
        return float(np.median([one.high - one.low for one in found]))

    assert width(12, 12) < 0.4 * width(3, 12)
    assert width(3, 48) > 0.6 * width(3, 12)


def test_half_widths_of_unpaired_estimates_add_in_squares() -> None:
    """Down: 3 below and 4 above make 5; up: 5 above and 12 below make 13."""
    one = Estimate(100.0, 97.0, 105.0, samples=9, effective=7.0)
    other = Estimate(80.0, 68.0, 84.0, samples=6, effective=6.0)
    assert independent_difference(one, other) == Estimate(
        20.0, 15.0, 33.0, samples=6, effective=6.0
    )


def test_differences_of_unpaired_estimates_are_covered() -> None:
    """At least 90 of 100 intervals hold the true difference, which is none."""
    draw = np.random.default_rng(5)
    trials = 200
    hits = 0
    for seed in range(trials):
        one, other = (
            bootstrap(simulated(draw, captures, 1.0), seed=seed, resamples=500)
            for captures in (8, 4)
        )
        found = independent_difference(one, other)
        hits += found.low <= 0.0 <= found.high
    assert hits / trials >= 0.90


def test_effective_size_of_an_alternation() -> None:
    """Rounds that alternate count in full: truncation allows no bonus."""
    assert effective_size(np.array([1.0, -1.0] * 8)) == 16.0


def test_effective_size_of_a_step() -> None:
    """Two levels of four rounds: lags 1 to 3 correlate by 5/8, 2/8 and -1/8."""
    values = np.array([1.0] * 4 + [-1.0] * 4)
    assert effective_size(values) == pytest.approx(8 / (1 + 2 * (5 / 8 + 2 / 8)))


def test_one_more_value_lies_within_students_prediction_interval() -> None:
    """Of 1, 2, 3 the next is within 4.303 * 1 * sqrt(4 / 3) of their mean."""
    assert prediction_bound(np.array([1.0, 2.0, 3.0])) == pytest.approx(4.968275)
    assert prediction_bound(np.array([5.0, 5.0])) == 0.0


def test_a_surer_prediction_reaches_further() -> None:
    """At 97.5 %, for one of two arms, the quantile is 6.205 and not 4.303."""
    found = prediction_bound(np.array([1.0, 2.0, 3.0]), 0.975)
    assert found == pytest.approx(6.205347 * math.sqrt(4 / 3))


def test_one_value_predicts_nothing() -> None:
    """Without a second value there is no spread."""
    assert prediction_bound(np.array([7.0])) == math.inf
