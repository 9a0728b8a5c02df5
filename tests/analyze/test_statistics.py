import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.statistics import (
    Comparison,
    Verdict,
    anchor,
    compare,
    noise_floor,
    observer_effect,
    paired,
    share_changes,
)
from layerscope.schema import PASS_SHARES

CAPTURES, ROUNDS = 3, 8


def times(
    *,
    captures: int = CAPTURES,
    rounds: int = ROUNDS,
    noise_ns: float = 0.0,
    seed: int = 0,
    **arms_ns: float,
) -> pl.DataFrame:
    """What `pass_times` gives for arms of known time."""
    draw = np.random.default_rng(seed)
    rows = [
        ("anchor", arm, "captured", capture, round_, ns + draw.normal(0.0, noise_ns))
        for arm, ns in arms_ns.items()
        for capture in range(captures)
        for round_ in range(rounds)
    ]
    names = ["phase", "arm", "experiment", "capture", "round", "pass_ns"]
    return pl.DataFrame(rows, schema=names, orient="row")


def shares(*rows: tuple[str, int, int, str, int]) -> pl.DataFrame:
    """`PASS_SHARES` of (arm, round, pass, region, share) in three captures."""
    filled = {"experiment": "captured", "replay": 0, "kernels": 1, "gap_ns": 0}
    filled |= {"duration_ns": 0, "hidden_ns": 0, "span_ns": 0}
    names = ("arm", "round", "pass_index", "region", "share_ns")
    return pl.DataFrame(
        [
            filled | {"capture": capture} | dict(zip(names, row, strict=True))
            for capture in range(CAPTURES)
            for row in rows
        ],
        schema=PASS_SHARES,
    )


def exactly(value: float, samples: int = CAPTURES * ROUNDS) -> Estimate:
    """The estimate of rounds that all agree."""
    return Estimate(value, value, value, samples, float(samples))


def test_anchor_and_difference_without_noise() -> None:
    """Without noise, anchors and differences are exact; negative is faster."""
    found = times(a=40_000.0, b=30_000.0)
    assert anchor(found, "a") == exactly(40_000.0)
    assert paired(found, "a", "b") == exactly(-10_000.0)
    assert compare(found, "a", "b", 100.0) == Comparison(
        exactly(-10_000.0), -0.25, Verdict.FASTER, ""
    )
    assert compare(found, "b", "a", 100.0).verdict is Verdict.SLOWER


def test_only_the_asked_experiment_and_phase_count() -> None:
    """Serial twins and the replays after profiling do not mix with the anchor."""
    captured = times(a=100.0, b=90.0)
    serial = captured.with_columns(pl.col("pass_ns") * 2, experiment=pl.lit("serial"))
    after = captured.with_columns(pl.col("pass_ns") * 3, phase=pl.lit("after"))
    found = pl.concat([captured, serial, after])
    assert anchor(found, "a") == exactly(100.0)
    assert anchor(found, "a", experiment="serial") == exactly(200.0)
    assert paired(found, "a", "b", phase="after") == exactly(-30.0)


def test_pairing_cancels_what_rounds_share() -> None:
    """A drift that both arms see is no uncertainty of their difference."""
    drift = pl.col("pass_ns") + pl.col("round") ** 2 + 500 * pl.col("capture")
    found = times(a=100.0, b=90.0).with_columns(drift)
    assert paired(found, "a", "b") == exactly(-10.0)


def test_differences_up_to_the_floor_are_none() -> None:
    """A difference as large as the noise floor is none, however certain."""
    found = compare(times(a=1000.0, b=990.0), "a", "b", 10.0)
    assert found.verdict is Verdict.NO_DIFFERENCE
    assert found.reason == "within the noise floor"


def test_intervals_around_zero_are_no_difference() -> None:
    """A difference that the interval cannot tell from zero is none, floor or not."""
    found = compare(times(a=1000.0, b=1001.0, noise_ns=20.0), "a", "b", 0.0)
    assert found.difference.low < 0 < found.difference.high
    assert found.verdict is Verdict.NO_DIFFERENCE
    assert found.reason == "the interval includes zero"


def test_small_differences_are_found() -> None:
    """One percent is seen through noise of half a percent in 24 rounds."""
    found = times(a=1000.0, again=1000.0, b=990.0, noise_ns=2.0)
    floor_ns = noise_floor(found, "a", "again")
    assert compare(found, "a", "b", floor_ns).verdict is Verdict.FASTER


def test_too_few_rounds_are_unknown() -> None:
    """Three pairs of three captures allow no verdict."""
    found = compare(times(captures=3, rounds=1, a=1000.0, b=1.0), "a", "b", 0.0)
    assert found.verdict is Verdict.UNKNOWN
    assert found.reason == "needs 6 rounds, has 3"


def test_too_few_captures_are_unknown() -> None:
    """Two captures allow no verdict, however many rounds they have."""
    found = compare(times(captures=2, rounds=90, a=1000.0, b=1.0), "a", "b", 0.0)
    assert found.verdict is Verdict.UNKNOWN
    assert found.reason == "needs 3 captures, has 2"
    assert found.difference == exactly(-999.0, samples=180)


def test_arms_without_common_rounds_are_unknown() -> None:
    """Arms that never ran in one round cannot be compared, whatever their times."""
    found = times(a=1000.0, b=1.0).filter(
        (pl.col("arm") == "a") == (pl.col("round") < ROUNDS // 2)
    )
    assert compare(found, "a", "b", 0.0).verdict is Verdict.UNKNOWN
    assert math.isnan(compare(found, "a", "b", 0.0).relative)


def test_an_unknown_floor_is_unknown() -> None:
    """Without A/A rounds there is no floor, and without a floor no verdict."""
    found = times(a=1000.0, b=1.0)
    floor_ns = noise_floor(found, "a", "a (A/A)")
    assert floor_ns == math.inf
    unknown = compare(found, "a", "b", floor_ns)
    assert unknown.verdict is Verdict.UNKNOWN
    assert unknown.reason == "too few A/A captures to know the noise floor"


def test_a_floor_from_two_captures_is_unknown() -> None:
    """Two captures do not tell by how much captures differ, even if both agree."""
    assert noise_floor(times(captures=2, a=1.0, again=1.0), "a", "again") == math.inf
    assert noise_floor(times(captures=3, a=1.0, again=1.0), "a", "again") == 0.0


@given(st.sets(st.integers(0, CAPTURES * ROUNDS - 1)), st.integers(0, 9))
def test_unequal_counts_make_no_difference(left_out: set[int], seed: int) -> None:
    """An arm against some of its own rounds never differs, whichever are missing."""
    whole = times(a=1000.0, noise_ns=50.0, seed=seed)
    part = whole.with_columns(arm=pl.lit("part")).filter(
        ~pl.int_range(pl.len()).is_in(list(left_out))
    )
    for base, other in (("a", "part"), ("part", "a")):
        found = compare(pl.concat([whole, part]), base, other, 0.0)
        assert found.verdict in {Verdict.NO_DIFFERENCE, Verdict.UNKNOWN}
        assert found.difference.samples == part.height


def test_noise_floor_is_the_end_of_the_interval() -> None:
    """The floor is as far from zero as the A/A interval reaches, on either side."""
    found = times(a=1000.0, again=1003.0, noise_ns=5.0)
    forth, back = paired(found, "a", "again"), paired(found, "again", "a")
    assert noise_floor(found, "a", "again") == max(-forth.low, forth.high)
    assert noise_floor(found, "again", "a") == max(-back.low, back.high)


def test_noise_floor_of_arms_that_differ_exactly_is_that_difference() -> None:
    """Without any spread the bound is the difference itself, whatever its sign."""
    assert noise_floor(times(a=1000.0, again=1002.0), "a", "again") == 2.0
    assert noise_floor(times(a=1000.0, again=998.0), "a", "again") == 2.0


def test_captures_that_disagree_raise_the_noise_floor() -> None:
    """One capture in which an arm differs from itself widens the bound beyond it."""
    odd = pl.when(arm="again", capture=1).then(30.0).otherwise(0.0)
    found = times(a=1000.0, again=1000.0).with_columns(pl.col("pass_ns") + odd)
    assert noise_floor(found, "a", "again") > 30.0 / 3


def test_observer_effect_is_the_profiled_pass_less_the_anchor() -> None:
    """Both sides are the mean over captures of the median over rounds, unpaired.

    Rounds of mean 95, 115 and 125 a pass have the median 115, however many passes they
    have; the unprofiled pass takes 100.
    """
    rounds = ((0, (90, 100)), (1, (115,)), (2, (120, 130)))
    found = shares(
        *(
            ("a", round_, index, region, share)
            for round_, passes in rounds
            for index, ns in enumerate(passes, start=1)
            for region, share in (("attention", 40), ("moe", ns - 40))
        ),
        ("b", 0, 1, "moe", 7),
    )
    steady = found.filter(pl.col("round") == 1)
    anchors = times(captures=5, a=100.0, b=1.0)
    assert observer_effect(steady, anchors, "a") == exactly(15.0, samples=3)
    effect = observer_effect(found, anchors, "a")
    assert (effect.value, effect.samples) == (15.0, 9)
    assert effect.low < 15.0 < effect.high


def test_observer_effect_of_an_arm_that_was_not_profiled_is_unknown() -> None:
    """Without profiled passes there is no number."""
    found = observer_effect(shares(), times(a=100.0), "a")
    assert math.isnan(found.value)
    assert found.samples == 0


def test_share_changes_by_region() -> None:
    """Each region is judged by its mean share a pass and its own A/A floor."""
    regions = {
        "a": {"attention": 100, "moe": 200},
        "a (A/A)": {"attention": 100, "moe": 230},
        "b": {"attention": 90, "moe": 180},
    }
    found = shares(
        *(
            (arm, round_, index, region, share + (index - 1))
            for arm, parts in regions.items()
            for round_ in range(ROUNDS)
            for index in range(3)
            for region, share in parts.items()
        )
    )
    assert share_changes(found, "a", "b") == {
        "attention": Comparison(exactly(-10.0), -0.1, Verdict.FASTER, ""),
        "moe": Comparison(
            exactly(-20.0), -0.1, Verdict.NO_DIFFERENCE, "within the noise floor"
        ),
    }


def test_share_of_a_region_that_an_arm_lacks_is_zero() -> None:
    """A region without kernels in an arm, or in a pass, has the share zero there."""
    found = shares(
        *(
            ("a", round_, index, "moe", 50)
            for round_ in range(ROUNDS)
            for index in (1, 2)
        ),
        *(("b", round_, 1, "moe", 50) for round_ in range(ROUNDS)),
        *(("b", round_, 2, "other", 30) for round_ in range(ROUNDS)),
    )
    changes = share_changes(found, "a", "b")
    assert changes["moe"].difference == exactly(25.0 - 50.0)
    assert changes["other"].difference == exactly(15.0)
    assert math.isnan(changes["other"].relative)


def test_shares_of_too_few_captures_are_unknown() -> None:
    """Regions need three captures for a verdict, as the layer does."""
    found = shares(
        *(
            (arm, r, 1, "moe", ns)
            for arm, ns in (("a", 50), ("b", 40), ("a (A/A)", 50))
            for r in range(8)
        )
    ).filter(pl.col("capture") < 2)
    assert share_changes(found, "a", "b") == {
        "moe": Comparison(
            exactly(-10.0, samples=16),
            -0.2,
            Verdict.UNKNOWN,
            "needs 3 captures, has 2",
        )
    }


def test_share_changes_without_a_floor_say_so() -> None:
    """Without an A/A arm the interval decides alone, and the reason tells."""
    found = shares(
        *(
            (arm, r, 1, "moe", ns)
            for arm, ns in (("a", 50), ("b", 40))
            for r in range(8)
        )
    )
    assert share_changes(found, "a", "b")["moe"] == Comparison(
        exactly(-10.0), -0.2, Verdict.FASTER, "no A/A arm: the interval alone decides"
    )


@pytest.mark.parametrize("verdict", list(Verdict))
def test_verdicts_read_as_words(verdict: Verdict) -> None:
    """A verdict formats as the words that reports show."""
    assert str(verdict) in {"faster", "slower", "no difference", "unknown"}
