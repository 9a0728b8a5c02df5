"""What a pass takes where its graph is edited otherwise than for the ledger."""

from dataclasses import dataclass

import polars as pl

from layerscope.analyze.bootstrap import Estimate, estimate
from layerscope.analyze.statistics import ANCHOR, anchor
from layerscope.analyze.verdicts import pair_rounds
from layerscope.experiment import CAPTURED, SERIAL
from layerscope.run_header import RunHeader


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One edited graph of an arm, which does all the work of the captured one."""

    experiment: str

    pass_ns: Estimate
    """The time of a pass of it."""

    change: Estimate
    """That minus the captured graph's, paired by round; ns."""


def what_ifs(header: RunHeader, times: pl.DataFrame, arm: str) -> tuple[WhatIf, ...]:
    """Every edited graph of `arm` that was timed beside the captured one.

    Not those that lack a region, which have rounds of their own, nor the serial twin,
    which is the ledger's, nor what was asked for the switches of the arm alone.

    Args:
        header: of the run.
        times: `pass_times` of the run.
        arm: which one.
    """
    study = header.study
    own = {*study.switch_experiments.get(arm, ())} - {*study.experiments}
    asked = [
        trial.experiment
        for trial in header.trials
        if trial.arm == arm
        and trial.outcome == "measured"
        and trial.experiment not in own
    ]
    graphs = times.filter(pl.col("arm") == arm, pl.col("phase") == ANCHOR).select(
        "capture", "round", "pass_ns", arm="experiment"
    )
    return tuple(
        WhatIf(
            experiment.name,
            anchor(times, arm, experiment=experiment.name),
            estimate(pair_rounds(graphs, CAPTURED, experiment.name), "change_ns"),
        )
        for experiment in asked
        if experiment != SERIAL and not experiment.without
    )
