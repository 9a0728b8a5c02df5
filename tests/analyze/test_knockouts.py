from dataclasses import replace

import msgspec
import polars as pl
import pytest

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.knockouts import KnockOut, disabled_cost, knock_outs
from layerscope.analyze.statistics import pass_times
from layerscope.experiment import SERIAL
from layerscope.run import Run
from tests import edited


def found(run: Run, arm: str) -> tuple[KnockOut, ...]:
    """The regions of an arm that were taken out."""
    return knock_outs(run.header, pass_times(run.samples), arm)


def exactly(value: float) -> Estimate:
    """An estimate of 18 rounds without noise."""
    return Estimate(value, value, value, 18, 18.0)


def test_a_region_of_a_serial_arm_has_one_cost() -> None:
    """40,000 - (28,000 - 300) ns, for the captured graph is the serial twin too."""
    assert found(edited.run(), "reference") == (
        KnockOut(
            region="moe",
            serial=exactly(12_300),
            captured=exactly(12_300),
            nodes=1.0,
            disabled_ns=300.0,
        ),
    )


def test_a_region_of_an_overlapping_arm_has_a_cost_and_a_marginal() -> None:
    """34,000 - (24,500 - 300) ns on the twin, 30,000 - (22,000 - 300) as captured.

    The rounds lack the whole twin, whose 34,000 ns come from the anchors.
    """
    assert found(edited.run(), "fused") == (
        KnockOut(
            region="moe",
            serial=exactly(9_800),
            captured=exactly(8_300),
            nodes=1.0,
            disabled_ns=300.0,
        ),
    )


def test_a_whole_twin_in_the_same_rounds_comes_first() -> None:
    """Paired with a twin of 35,000 ns in its own rounds, the region costs 10,800 ns."""
    run = edited.run()
    twin = run.samples.filter(
        pl.col("phase") == "knockout",
        pl.col("arm") == "fused",
        pl.col("experiment") == "captured",
    ).with_columns(
        experiment=pl.lit(SERIAL.name),
        duration_ns=pl.col("duration_ns") + 5_000 * pl.col("passes"),
    )
    (knocked,) = found(replace(run, samples=pl.concat([run.samples, twin])), "fused")
    assert knocked.serial == exactly(10_800)


def test_nodes_are_counted_a_pass() -> None:
    """96 disabled nodes in a replay of 24 passes are four in a row, which cost more."""
    trials = [
        msgspec.structs.replace(trial, nodes_disabled=96) for trial in edited.TRIALS
    ]
    (knocked,) = found(edited.run(trials=trials), "reference")
    assert knocked.nodes == 4.0
    assert knocked.disabled_ns == pytest.approx(1_100)
    assert knocked.captured is not None
    assert knocked.captured.value == pytest.approx(13_100)


def test_without_rounds_there_is_no_cost() -> None:
    """A study that was stopped before them has the trial and no number."""
    run = edited.run()
    stopped = replace(run, samples=run.samples.filter(pl.col("phase") != "knockout"))
    (knocked,) = found(stopped, "fused")
    assert (knocked.serial, knocked.captured) == (None, None)


def test_what_was_refused_is_not_there() -> None:
    """An arm of which no region was taken out has none; refusals are not results."""
    assert found(edited.run(trials=edited.TRIALS[-1:]), "fused") == ()
    assert found(edited.run(), "reference (A/A)") == ()


@pytest.mark.parametrize(
    ("nodes", "cost_ns"),
    [(0, 0), (0.5, 150), (1, 300), (2.5, 700), (4, 1_100), (7, 1_900)],
)
def test_costs_of_disabled_nodes_are_on_the_lines_between(
    nodes: float, cost_ns: float
) -> None:
    """1 node costs 300 ns and 4 cost 1,100: 2.5 half-way, 7 as much more again."""
    assert disabled_cost(edited.DISABLED, nodes) == pytest.approx(cost_ns)


def test_what_was_not_calibrated_costs_nothing() -> None:
    """A run without the calibration subtracts nothing."""
    assert disabled_cost([], 12) == 0
