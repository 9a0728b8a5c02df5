from collections.abc import Mapping

import polars as pl
import pytest

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.doses import Dose, DoseTest, Rise, dose_test
from layerscope.analyze.pass_times import pass_times
from layerscope.experiment import Experiment
from tests import switched
from tests.switched import ON, ONLY_B

FLOOR_NS = 10.0


def exactly(value: float) -> Estimate:
    """An estimate without noise, of the run's six rounds."""
    return Estimate(value, value, value, 6, 6.0)


def tried(savings_ns: Mapping[int, int], floor_ns: float = FLOOR_NS) -> DoseTest | None:
    """The test of doses that save so much, by their length."""
    frames = [
        switched.graph(arm, Experiment(delay="/route", delay_ns=dose), pass_ns)
        for dose, saving in savings_ns.items()
        for arm, pass_ns in ((ON, 35_000), (ONLY_B, 35_000 + saving))
    ]
    times = pass_times(pl.concat(frames))
    return dose_test(switched.header(), times, "/route", (ONLY_B, ON), floor_ns)


def test_a_dose_is_told_with_both_arms_and_what_the_switch_saves() -> None:
    """By length, ascending; a saving is positive."""
    test = tried({5_000: 4_000, 0: 1_000})
    assert test is not None
    assert test.doses == (
        Dose(
            delay_ns=0,
            without_ns=exactly(36_000),
            with_ns=exactly(35_000),
            saving_ns=exactly(1_000),
        ),
        Dose(
            delay_ns=5_000,
            without_ns=exactly(39_000),
            with_ns=exactly(35_000),
            saving_ns=exactly(4_000),
        ),
    )


@pytest.mark.parametrize(
    ("savings_ns", "rise", "reached_ns", "reason"),
    [
        ((3_000, 4_000, 5_000, 5_000), Rise.STAYS, 5_000, ""),
        ((3_000, 5_005, 5_000, 5_000), Rise.STAYS, 2_000, ""),
        ((0, 2_000, 5_000, 9_000), Rise.GOES_ON, 10_000, ""),
        ((300, 300, 300, 300), Rise.NONE, None, "the interval includes zero"),
        ((300, 303, 306, 309), Rise.NONE, None, "within the noise floor"),
        ((900, 600, 300, 0), Rise.NONE, None, "it falls"),
    ],
)
def test_a_saving_rises_until_the_early_work_is_done(
    savings_ns: tuple[int, ...], rise: Rise, reached_ns: int | None, reason: str
) -> None:
    """It stays from the first dose on that the longest is not beyond."""
    test = tried(dict(zip(switched.DOSES, savings_ns, strict=True)))
    assert test is not None
    assert (test.rise, test.reached_ns, test.reason) == (rise, reached_ns, reason)


def test_without_a_noise_floor_nothing_is_known() -> None:
    """The reason is that of any comparison."""
    test = tried({0: 0, 2_000: 2_000}, floor_ns=float("inf"))
    assert test is not None
    assert test.rise is Rise.UNKNOWN
    assert test.reason == "too few A/A captures to know the noise floor"


def test_one_dose_is_no_test() -> None:
    """Nor is one that only one of the arms allowed, nor one before nothing."""
    assert tried({2_000: 2_000}) is None
    times = pass_times(switched.samples())
    trials = [switched.measured(ON, one) for one in switched.DOSES.values()]
    header = switched.header(trials=trials)
    assert dose_test(header, times, "/route", (ONLY_B, ON), FLOOR_NS) is None
    assert dose_test(switched.header(), times, "", (ONLY_B, ON), FLOOR_NS) is None
