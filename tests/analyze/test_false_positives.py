import math

import numpy as np
import polars as pl
import pytest

from layerscope.analyze import false_positives
from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.false_positives import FalsePositives, false_positive_rate

ROUNDS = 12


def equal_arms(
    captures: int, *, between_ns: float, seed: int = 0, change_ns: float = 0.0
) -> pl.DataFrame:
    """Two captures of one arm, with noise of 1 ns in rounds and more in captures."""
    draw = np.random.default_rng(seed)
    rows = [
        ("anchor", arm, "captured", capture, round_, ns + draw.normal(0.0, 1.0))
        for arm, shift_ns in (("a", 0.0), ("again", change_ns))
        for capture, ns in enumerate(
            draw.normal(1000.0 + shift_ns, between_ns, size=captures)
        )
        for round_ in range(ROUNDS)
    ]
    names = ["phase", "arm", "experiment", "capture", "round", "pass_ns"]
    return pl.DataFrame(rows, schema=names, orient="row")


def blind_to_captures(rounds: pl.DataFrame, column: str, **_: object) -> Estimate:
    """The textbook interval of a mean, as if all rounds were independent."""
    values = rounds[column].to_numpy()
    mean = float(values.mean())
    half = 1.96 * float(values.std(ddof=1)) / math.sqrt(values.size)
    return Estimate(mean, mean - half, mean + half, values.size, float(values.size))


def test_captures_that_differ_rarely_count_as_a_difference() -> None:
    """By verdict at most 5 % of splits differ, although captures do, by much."""
    times = equal_arms(8, between_ns=20.0)
    found = false_positive_rate(times, "a", "again")
    assert found.splits == 127
    assert found.verdict <= 0.05
    assert found.interval <= 0.10
    assert found == false_positive_rate(times, "a", "again")


@pytest.mark.parametrize("seed", range(3))
def test_a_rule_that_is_blind_to_captures_is_caught(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interval that takes rounds for independent is too narrow, and it shows."""
    times = equal_arms(8, between_ns=20.0, seed=seed)
    monkeypatch.setattr(false_positives, "estimate", blind_to_captures)
    assert false_positive_rate(times, "a", "again").interval > 0.25


def test_captures_are_swapped_whole_and_never_all() -> None:
    """In all three captures an arm is 6 ns behind itself, without any noise.

    Swapping one or two captures leaves a mean of 2 or -2 ns and captures that disagree.
    Swapping none or all would leave 6 or -6 ns without any spread: a difference.
    """
    rows = [
        ("anchor", arm, "captured", capture, round_, ns)
        for arm, ns in (("a", 100.0), ("again", 106.0))
        for capture in range(3)
        for round_ in range(ROUNDS)
    ]
    names = ["phase", "arm", "experiment", "capture", "round", "pass_ns"]
    times = pl.DataFrame(rows, schema=names, orient="row")
    assert false_positive_rate(times, "a", "again") == FalsePositives(0.0, 0.0, 3)


def test_rounds_are_swapped_one_by_one_where_asked() -> None:
    """Then captures that differ are noise between rounds, and rarely a difference."""
    times = equal_arms(8, between_ns=20.0)
    found = false_positive_rate(times, "a", "again", unit="round")
    assert found.splits == 200
    assert found.interval <= 0.05
    assert found != false_positive_rate(times, "a", "again")


def test_an_interval_too_narrow_for_its_rounds_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A third of the honest width is exceeded by many splits of the rounds."""

    def narrow(rounds: pl.DataFrame, column: str, **_: object) -> Estimate:
        whole = blind_to_captures(rounds, column)
        half = (whole.high - whole.low) / 6
        ends = whole.value - half, whole.value + half
        return Estimate(whole.value, *ends, whole.samples, whole.effective)

    monkeypatch.setattr(false_positives, "estimate", narrow)
    times = equal_arms(8, between_ns=20.0)
    found = false_positive_rate(times, "a", "again", unit="round")
    assert found.interval > 0.25


def test_more_splits_than_are_asked_for_are_drawn_by_the_seed() -> None:
    """Ten captures have 511 splits; twenty of them are drawn, the same for a seed."""
    times = equal_arms(10, between_ns=20.0)
    first = false_positive_rate(times, "a", "again", splits=20, seed=3)
    assert first.splits == 20
    assert first == false_positive_rate(times, "a", "again", splits=20, seed=3)


def test_a_true_difference_is_no_false_positive() -> None:
    """Swapping takes away what the arms really differ by."""
    times = equal_arms(8, between_ns=1.0, change_ns=50.0)
    assert false_positive_rate(times, "a", "again").verdict == 0.0


def test_only_unprofiled_captured_graphs_count() -> None:
    """Serial twins and the replays after profiling are no part of the pairs."""
    times = equal_arms(4, between_ns=5.0)
    odd = times.with_columns(pl.col("pass_ns") * pl.col("round"))
    more = [
        times,
        odd.with_columns(phase=pl.lit("after")),
        odd.with_columns(experiment=pl.lit("serial")),
    ]
    assert false_positive_rate(pl.concat(more), "a", "again") == false_positive_rate(
        times, "a", "again"
    )


def test_too_few_captures_or_rounds_are_unknown() -> None:
    """There is no rate where there would be no verdict."""
    two = equal_arms(2, between_ns=1.0)
    short = equal_arms(3, between_ns=1.0).filter(pl.col("round") == 0)
    for times in (two, short):
        found = false_positive_rate(times, "a", "again")
        assert math.isnan(found.interval)
        assert math.isnan(found.verdict)
