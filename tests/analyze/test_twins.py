from dataclasses import replace
from typing import Literal

import msgspec
import polars as pl
import pytest

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.causes import Corners
from layerscope.analyze.statistics import pass_times
from layerscope.analyze.twins import Benefits, Twin, benefits, serial_twin
from layerscope.experiment import SERIAL
from layerscope.run_header import Trial
from tests.analyze.timelines import BASE, OTHER, Kernel, arms_run

BASE_CHAIN = [
    Kernel("attention", "attend", 5_000, 500),
    Kernel("moe", "experts", 8_000, 500, early_ns=300, saved_ns=100),
]
"""14,000 ns serial; captured it lacks a gap of 500 and another 100: 13,400."""

OTHER_CHAIN = [
    Kernel("attention", "attend", 4_000, 400),
    Kernel("moe", "experts", 8_000, 600, early_ns=900, saved_ns=400),
]
"""13,000 ns serial, 12,000 captured."""


def exactly(value: float) -> Estimate:
    """The estimate of six rounds that all agree."""
    return Estimate(value, value, value, 6, 6.0)


def test_benefits_of_two_arms() -> None:
    """Overlap gives the base 600 ns and the other 1,000: 400 of the change."""
    times = pass_times(arms_run(BASE_CHAIN, OTHER_CHAIN).samples)
    assert benefits(times, (BASE, "serial"), (OTHER, "serial")) == Benefits(
        corners=Corners(
            base=exactly(13_400.0),
            base_serial=exactly(14_000.0),
            other=exactly(12_000.0),
            other_serial=exactly(13_000.0),
            base_benefit=exactly(600.0),
            other_benefit=exactly(1_000.0),
        ),
        overlap=exactly(-400.0),
        serial_change=exactly(-1_000.0),
    )


def test_an_arm_that_is_serial_already_gains_nothing() -> None:
    """Its captured rows are those of its twin, so its benefit is zero."""
    times = pass_times(arms_run(BASE_CHAIN, OTHER_CHAIN).samples)
    found = benefits(times, (BASE, "captured"), (OTHER, "serial"))
    assert found.corners.base_benefit == exactly(0.0)
    assert found.overlap == exactly(-1_000.0)
    assert found.serial_change == exactly(-400.0)


def test_only_rounds_with_all_four_graphs_are_paired() -> None:
    """A round that lacks a twin says nothing of overlap, and still is an anchor."""
    times = pass_times(arms_run(BASE_CHAIN, OTHER_CHAIN).samples)
    short = times.filter((pl.col("experiment") != "serial") | (pl.col("round") == 0))
    found = benefits(short, (BASE, "serial"), (OTHER, "serial"))
    assert found.overlap.samples == 2
    assert found.corners.base.samples == 6


def test_a_twin_that_was_measured() -> None:
    """Its rows are those of the experiment."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN)
    assert serial_twin(run, BASE) == Twin("serial")


def test_a_twin_that_would_be_the_same() -> None:
    """The rows of the captured graph stand for it."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN, twins="same")
    assert serial_twin(run, BASE) == Twin("captured")


def test_no_twin_was_asked_for() -> None:
    """As in runs from before there were experiments."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN, twins=None)
    assert serial_twin(run, OTHER) == Twin("", "no serial twin was asked for")


def test_no_twin_of_this_arm_was_asked_for() -> None:
    """Where others have one, the reason names the arm."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN)
    trials = [trial for trial in run.header.trials if trial.arm == BASE]
    header = msgspec.structs.replace(run.header, trials=trials)
    reason = "fused has no serial twin: none was asked for"
    assert serial_twin(replace(run, header=header), OTHER) == Twin("", reason)


@pytest.mark.parametrize("outcome", ["refused", "discarded"])
def test_a_twin_without_results_has_a_reason(
    outcome: Literal["refused", "discarded"],
) -> None:
    """What the run says of the trial is passed on."""
    trial = Trial(arm=OTHER, experiment=SERIAL, outcome=outcome, reason="a child node")
    run = arms_run(BASE_CHAIN, OTHER_CHAIN, trials=[trial])
    expected = f"fused has no serial twin: it was {outcome} (a child node)"
    assert serial_twin(run, OTHER) == Twin("", expected)


def test_a_twin_of_a_stopped_run() -> None:
    """One that was never timed, or not recorded, cannot be used."""
    run = arms_run(BASE_CHAIN, OTHER_CHAIN)
    captured = pl.col("experiment") == "captured"
    untimed = replace(run, samples=run.samples.filter(captured))
    unrecorded = replace(run, kernels=run.kernels.filter(captured))
    assert serial_twin(untimed, BASE).reason == (
        "the serial twin of reference was not timed"
    )
    assert serial_twin(unrecorded, BASE).reason == (
        "the serial twin of reference was not recorded"
    )
