import math

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.verdicts import (
    Comparison,
    Verdict,
    floor_of,
    judge,
    pair_rounds,
    verdict_on,
)


def paired(captures: int, change_ns: float) -> pl.DataFrame:
    """Two rounds a capture in which the other arm differs by `change_ns` from 100."""
    rounds = [
        (capture, round_, 100.0, change_ns)
        for capture in range(captures)
        for round_ in range(2)
    ]
    names = ["capture", "round", "base_ns", "change_ns"]
    return pl.DataFrame(rounds, schema=names, orient="row")


def test_pairs_are_the_rounds_that_both_arms_ran() -> None:
    """A round of one arm alone pairs with nothing, and no other arm is in the way."""
    times = pl.DataFrame(
        [
            ("b", 1, 0, 11.0),
            ("b", 0, 1, 9.0),
            ("a", 0, 0, 5.0),
            ("a", 0, 1, 6.0),
            ("a", 1, 0, 8.0),
            ("c", 0, 0, 1.0),
        ],
        schema=["arm", "capture", "round", "pass_ns"],
        orient="row",
    )
    expected = {
        "capture": [0, 1],
        "round": [1, 0],
        "base_ns": [6.0, 8.0],
        "change_ns": [3.0, 3.0],
    }
    assert_frame_equal(pair_rounds(times, "a", "b"), pl.DataFrame(expected))


@pytest.mark.parametrize(
    ("low", "high", "captures", "floor_ns", "verdict", "reason"),
    [
        (-11, -9, 3, 5, Verdict.FASTER, ""),
        (9, 11, 3, 5, Verdict.SLOWER, ""),
        (-1, 11, 3, 0, Verdict.NO_DIFFERENCE, "the interval includes zero"),
        (0, 11, 3, 0, Verdict.NO_DIFFERENCE, "the interval includes zero"),
        (9, 11, 3, 10, Verdict.NO_DIFFERENCE, "within the noise floor"),
        (9, 11, 2, 5, Verdict.UNKNOWN, "needs 3 captures, has 2"),
        (
            *(9, 11, 3, math.inf, Verdict.UNKNOWN),
            "too few A/A captures to know the noise floor",
        ),
    ],
)
def test_a_verdict_needs_captures_interval_and_floor(
    low: float,
    high: float,
    captures: int,
    floor_ns: float,
    verdict: Verdict,
    reason: str,
) -> None:
    """What lacks any of them is no difference, or unknown, and the reason says why."""
    found = Estimate((low + high) / 2, low, high, samples=6, effective=6.0)
    assert verdict_on(found, captures, floor_ns) == (verdict, reason)


def test_a_verdict_needs_six_rounds() -> None:
    """Five rounds are unknown, whatever they say."""
    found = Estimate(10.0, 9.0, 11.0, samples=5, effective=5.0)
    assert verdict_on(found, 3, 0.0) == (Verdict.UNKNOWN, "needs 6 rounds, has 5")


def test_a_note_goes_with_clear_verdicts_only() -> None:
    """Where there is a reason against a verdict, that is told instead."""
    clear = Estimate(-10.0, -10.0, -10.0, samples=6, effective=6.0)
    assert judge(paired(3, -10.0), 0.0, "a note") == Comparison(
        clear, -0.1, Verdict.FASTER, "a note"
    )
    stopped = judge(paired(3, -10.0), 10.0, "a note")
    assert stopped.reason == "within the noise floor"


def test_the_floor_of_two_captures_is_unknown() -> None:
    """It is the difference itself where nothing spreads, but of three captures only."""
    assert floor_of(paired(2, -4.0)) == math.inf
    assert floor_of(paired(3, -4.0)) == 4.0
