from dataclasses import replace

import polars as pl
import pytest

from layerscope.analyze.across_runs import AcrossRuns, Outcome, across, gate
from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.statistics import Comparison, Verdict
from layerscope.run import Run
from tests import handmade


def slower(run: Run, by_ns: int, arm: str = "fused") -> Run:
    """`run`, with every pass of `arm` longer by `by_ns`."""
    more = pl.when(pl.col("arm") == arm).then(pl.col("passes") * by_ns).otherwise(0)
    samples = run.samples.with_columns(duration_ns=pl.col("duration_ns") + more)
    return replace(run, samples=samples)


def compared(low: float, value: float, high: float, floor_ns: float = 0) -> AcrossRuns:
    """Ten captures of 1,000 ns against others, with a given difference."""
    judged = Verdict.SLOWER if low > 0 and value > floor_ns else Verdict.NO_DIFFERENCE
    base = Estimate(1_000, 1_000, 1_000, 100, 100.0)
    return AcrossRuns(
        base_arm="fused",
        other_arm="fused",
        base=base,
        other=replace(base, value=1_000 + value),
        comparison=Comparison(
            Estimate(value, low, high, 100, 100.0), value / 1_000, judged, "noise"
        ),
        floor_ns=floor_ns,
        captures=10,
    )


def test_a_run_against_itself_does_not_differ() -> None:
    """Its anchors are the same 30,000 ns, and the noise floor its own."""
    run = handmade.run()
    assert across(run, run, "fused", "fused") == AcrossRuns(
        base_arm="fused",
        other_arm="fused",
        base=Estimate(30_000, 30_000, 30_000, 18, 18.0),
        other=Estimate(30_000, 30_000, 30_000, 18, 18.0),
        comparison=Comparison(
            Estimate(0, 0, 0, 18, 18.0),
            0.0,
            Verdict.NO_DIFFERENCE,
            "the interval includes zero",
        ),
        floor_ns=100.0,
        captures=3,
    )


def test_arms_of_two_names_are_compared_by_their_anchors() -> None:
    """40,000 ns against 30,000 ns is slower by a third."""
    run = handmade.run()
    found = across(run, run, "fused", "reference").comparison
    assert found == Comparison(
        Estimate(10_000, 10_000, 10_000, 18, 18.0), 1 / 3, Verdict.SLOWER, ""
    )


def test_the_larger_noise_floor_of_the_two_counts() -> None:
    """150 ns beyond one run's floor of 100 ns are none within the other's of 300 ns."""
    run = handmade.run()
    noisy = slower(slower(run, 200, "reference (A/A)"), 150)
    assert across(run, slower(run, 150), "fused", "fused").comparison.verdict == (
        Verdict.SLOWER
    )
    found = across(run, noisy, "fused", "fused")
    assert found.floor_ns == 300
    assert found.comparison.verdict is Verdict.NO_DIFFERENCE
    assert found.comparison.reason == "within the noise floor"


def test_captures_that_differ_widen_the_interval_of_a_run_alone() -> None:
    """Nothing is paired: the half-widths of both runs add up as squares."""
    run = handmade.run()
    wobble = pl.col("passes") * (pl.col("capture") - 1) * 300
    wide = replace(
        run,
        samples=run.samples.with_columns(duration_ns=pl.col("duration_ns") + wobble),
    )
    one = across(run, wide, "fused", "fused").comparison.difference
    both = across(wide, wide, "fused", "fused").comparison.difference
    assert both.high == pytest.approx(2**0.5 * one.high)
    assert one.high > 300


def test_clocks_of_two_runs_that_differ_are_a_doubt() -> None:
    """A run at another clock has no verdict, and the reason names both."""
    run = handmade.run()
    low = replace(
        run, samples=run.samples.with_columns(sm_clock_mhz=pl.lit(1_755, pl.Int64))
    )
    found = across(run, low, "fused", "fused").comparison
    assert found.verdict is Verdict.UNKNOWN
    assert found.reason == "clock: 1,755 MHz in the other run, 1,980 MHz in the base"


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        (compared(-5, 5, 15), Outcome.PASS),
        (compared(10, 20, 30), Outcome.PASS),  # as much as is allowed, and no more
        (compared(15, 25, 35), Outcome.FAIL),
        (compared(-40, -30, -20), Outcome.PASS),
        (compared(-5, 25, 55), Outcome.UNKNOWN),  # the interval includes zero
        (compared(15, 25, 35, floor_ns=30), Outcome.UNKNOWN),  # within the floor
    ],
)
def test_a_gate_fails_only_beyond_bound_interval_and_floor(
    found: AcrossRuns, outcome: Outcome
) -> None:
    """With 2 % of 1,000 ns allowed, each of the three alone does not fail it."""
    judged = gate(found, 0.02)
    assert judged.outcome is outcome
    assert (judged.across, judged.allowed) == (found, 0.02)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (compared(-5, 25, 55), "slower by more than is allowed, but noise"),
        (
            replace(compared(15, 25, 35), captures=4),
            "needs 5 captures of both, has 4",
        ),
        (
            replace(
                compared(15, 25, 35),
                comparison=replace(
                    compared(15, 25, 35).comparison,
                    verdict=Verdict.UNKNOWN,
                    reason="clock: held down by sync boost",
                ),
            ),
            "clock: held down by sync boost",
        ),
    ],
)
def test_what_a_gate_cannot_tell_is_unknown_with_a_reason(
    found: AcrossRuns, reason: str
) -> None:
    """Few captures, a clock in doubt, or noise as large as the regression."""
    judged = gate(found, 0.02)
    assert (judged.outcome, judged.reason) == (Outcome.UNKNOWN, reason)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (compared(-5, 5, 15), "not slower by more than is allowed"),
        (compared(-15, 5, 25), "the interval reaches beyond what is allowed"),
    ],
)
def test_a_pass_says_whether_it_is_shown(found: AcrossRuns, reason: str) -> None:
    """An interval that reaches beyond 20 of 1,000 ns does not rule out a regression."""
    judged = gate(found, 0.02)
    assert (judged.outcome, judged.reason) == (Outcome.PASS, reason)
