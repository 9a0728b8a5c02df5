"""What experiments and the profiler leave behind: gaps of twins, anchors after it."""

from pathlib import Path
from typing import Final

import polars as pl

from benchmarks.accuracy.markdown import plus_minus, runs_in, table
from layerscope.analyze.bootstrap import estimate
from layerscope.analyze.shares import kernel_shares
from layerscope.analyze.statistics import anchor, pass_times
from layerscope.experiment import CAPTURED, SERIAL
from layerscope.report.measures import AFTER
from layerscope.run import Run

_GAPS: Final = (("run", "arm", "edges", "graph"), ("gap, µs", "kernel, µs"))
_AFTER: Final = (("run", "arm", "edges"), ("before, µs", "after, µs"))


def gaps_table(folder: Path) -> str:
    """Mean gap and duration of a kernel in graphs in which nothing overlaps.

    Args:
        folder: of runs.
    """
    rows = []
    for name, run in runs_in(folder):
        for arm, graph in _serial_graphs(run):
            mine = pl.col("arm") == arm, pl.col("experiment") == graph
            inside = kernel_shares(run.kernels.filter(*mine)).filter(
                pl.col("pass_index") > 0
            )
            rounds = inside.group_by("capture", "round").agg(
                pl.col("gap_ns", "duration_ns").mean()
            )
            told = [
                plus_minus(estimate(rounds, column), signed=False)
                for column in ("gap_ns", "duration_ns")
            ]
            rows.append((name, arm, _edges(run, arm), graph, *told))
    return table(*_GAPS, rows)


def after_table(folder: Path) -> str:
    """The anchor of every arm before a profiler was attached, and once it was detached.

    Args:
        folder: of runs.
    """
    rows = []
    for name, run in runs_in(folder):
        times = pass_times(run.samples)
        for arm in (arm.name for arm in run.header.study.arms):
            told = [
                plus_minus(anchor(times, arm, phase=phase), signed=False)
                for phase in ("anchor", AFTER)
            ]
            rows.append((name, arm, _edges(run, arm), *told))
    return table(*_AFTER, rows)


def _edges(run: Run, arm: str) -> str:
    return "programmatic" if run.header.programmatic.get(arm) else "full"


def _serial_graphs(run: Run) -> list[tuple[str, str]]:
    """Of every arm the graph in which its kernels run one after the other."""
    outcomes = {
        trial.arm: trial.outcome
        for trial in run.header.trials
        if trial.experiment == SERIAL
    }
    names = {"same": CAPTURED, "measured": SERIAL.name}
    return [(arm, names[told]) for arm, told in outcomes.items() if told in names]
