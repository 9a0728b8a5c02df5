import msgspec
import polars as pl

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.pass_times import pass_times
from layerscope.analyze.what_ifs import WhatIf, what_ifs
from layerscope.experiment import Experiment
from layerscope.run_header import Trial
from tests import edited, handmade

DELAYED = Experiment(delay="moe", delay_ns=500)
TRIALS = [
    *edited.TRIALS,
    Trial(arm="fused", experiment=DELAYED, outcome="measured"),
    Trial(arm="reference", experiment=DELAYED, outcome="refused", reason="no kernel"),
]


def times() -> pl.DataFrame:
    """Pass times of the edited run; the twin of ``fused`` is also delayed by 500 ns."""
    samples = edited.samples()
    anchors = (pl.col("phase") == "anchor") & (pl.col("experiment") == "serial")
    delayed = samples.filter(anchors).with_columns(
        experiment=pl.lit(DELAYED.name),
        duration_ns=pl.col("duration_ns") + 500 * pl.col("passes"),
    )
    return pass_times(pl.concat([samples, delayed]))


def exactly(value: float) -> Estimate:
    """An estimate without noise, of every round of the hand-made run."""
    rounds = handmade.CAPTURES * handmade.ROUNDS
    return Estimate(value, value, value, samples=rounds, effective=float(rounds))


def test_an_edited_graph_is_compared_with_the_captured_one_of_its_arm() -> None:
    """34.5 us beside 30; neither the twin nor regions left out are among them."""
    (found,) = what_ifs(edited.run(trials=TRIALS).header, times(), "fused")
    assert found == WhatIf("moe delayed by 500 ns", exactly(34_500.0), exactly(4_500.0))


def test_what_was_refused_has_no_time() -> None:
    """It is a note of the report."""
    assert what_ifs(edited.run(trials=TRIALS).header, times(), "reference") == ()


def test_what_was_asked_for_the_switches_of_an_arm_is_told_with_them() -> None:
    """Unless it was asked of every arm too."""
    run = edited.run(trials=TRIALS)
    own = {"fused": (DELAYED,)}
    study = msgspec.structs.replace(run.header.study, switch_experiments=own)
    header = edited.run(trials=TRIALS, study=study).header
    assert what_ifs(header, times(), "fused") == ()
    study = msgspec.structs.replace(study, experiments=(DELAYED,))
    header = edited.run(trials=TRIALS, study=study).header
    assert [each.experiment for each in what_ifs(header, times(), "fused")] == [
        DELAYED.name
    ]
