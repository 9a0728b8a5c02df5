"""Shares of regions beside what a pass takes less without them, on serial twins."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from benchmarks.accuracy.markdown import plus_minus, runs_in, table
from layerscope.analyze.attribution import changes, records
from layerscope.analyze.bootstrap import estimate, independent_difference
from layerscope.analyze.knockouts import knock_outs
from layerscope.analyze.statistics import anchor, pass_times
from layerscope.analyze.twins import serial_twin
from layerscope.run import Run
from layerscope.units import format_percent


def knock_out_table(folder: Path) -> str:
    """Every region below `folder` that was taken out of a serial twin."""
    rows = [
        (name, *cells) for name, run in runs_in(folder) for cells in knock_out_rows(run)
    ]
    if not rows:
        return "Not recorded yet: no run has a knock-out on a serial twin."
    return table(
        ("run", "arm", "region"),
        ("share, µs", "knock-out, µs", "difference, µs", "of the twin's pass"),
        rows,
    )


def knock_out_rows(run: Run) -> Iterator[tuple[str, ...]]:
    """Arm, region, share, knock-out and difference of each region of `run`.

    The share is that of the serial twin, less what the profiler is calibrated to cost.
    """
    times = pass_times(run.samples)
    for arm in (arm.name for arm in run.header.study.arms):
        twin = serial_twin(run, arm).experiment
        if not twin:
            continue
        side = records(run.kernels, arm, twin)
        spent = (
            changes(side, side, run.header.observer_costs)
            .group_by("capture", "round", "region", maintain_order=True)
            .agg(pl.col("base_ns").sum())
        )
        pass_ns = anchor(times, arm, experiment=twin).value
        for knocked in knock_outs(run.header, times, arm):
            if knocked.serial is not None:
                share = estimate(
                    spent.filter(pl.col("region") == knocked.region), "base_ns"
                )
                apart = independent_difference(share, knocked.serial)
                yield (
                    arm,
                    knocked.region,
                    plus_minus(share, signed=False),
                    plus_minus(knocked.serial, signed=False),
                    plus_minus(apart),
                    format_percent(apart.value / pass_ns, signed=True),
                )
