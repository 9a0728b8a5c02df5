"""What a profiler adds to a pass: observed of whole layers, and calibrated."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import polars as pl

from benchmarks.accuracy.markdown import plus_minus, runs_in, spread, table
from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.shares import pass_shares, region_table
from layerscope.analyze.statistics import anchor, observer_effect, pass_times
from layerscope.experiment import CAPTURED
from layerscope.run import Run
from layerscope.run_header import KernelCost
from layerscope.units import format_number, format_percent


@dataclass(frozen=True, slots=True)
class Added:
    """What the profiler added to an arm's pass, in ns."""

    arm: str
    effect: Estimate
    anchor_ns: float
    kernels: float
    """A pass."""

    @property
    def relative(self) -> float:
        """As a part of the anchor."""
        return self.effect.value / self.anchor_ns

    @property
    def kernel_ns(self) -> float:
        """Of each kernel."""
        return self.effect.value / self.kernels

    @property
    def cells(self) -> tuple[str, str, str]:
        """Of the table: in µs, of the pass, and in ns a kernel."""
        half_ns = (self.effect.high - self.effect.low) / 2 / self.kernels
        kernel, half = (format_number(ns, 0) for ns in (self.kernel_ns, half_ns))
        return (
            plus_minus(self.effect),
            format_percent(self.relative, signed=True),
            f"{kernel} ± {half} ({self.kernels:g})",
        )


def added(run: Run) -> Iterator[Added]:
    """What was added to the captured graph of every arm but the A/A arm."""
    times, shares = pass_times(run.samples), pass_shares(run.kernels)
    regions = region_table(shares).filter(pl.col("experiment") == CAPTURED)
    counts = dict(regions.group_by("arm").agg(pl.col("kernels").sum()).iter_rows())
    for arm in run.header.study.arms:
        found = anchor(times, arm.name)
        if arm.name in counts and found.samples:
            effect = observer_effect(shares, times, arm.name)
            yield Added(arm.name, effect, found.value, counts[arm.name])


def observer_tables(folder: Path, recorder: str) -> str:
    """Profiled pass minus anchor of every run with `recorder`, and a summary by arm.

    Args:
        folder: of runs.
        recorder: as in the header of a run.
    """
    found = {
        name: tuple(added(run))
        for name, run in runs_in(folder)
        if run.header.recorder == recorder
    }
    found = {name: arms for name, arms in found.items() if arms}
    if not found:
        return f"Not recorded yet: there is no run with {recorder}."
    groups: dict[tuple[str, ...], dict[str, tuple[Added, ...]]] = {}
    for name, arms in found.items():
        groups.setdefault(tuple(one.arm for one in arms), {})[name] = arms
    tables = [_group_table(names, runs) for names, runs in groups.items()]
    return "\n\n".join((_summary([*found.values()]), *tables))


def _group_table(names: tuple[str, ...], runs: dict[str, tuple[Added, ...]]) -> str:
    """The runs whose arms are `names`."""
    heads = ("added, µs", "of the pass", "ns a kernel")
    return table(
        ("run",),
        [f"{name}: {head}" for name in names for head in heads],
        (
            (name, *(cell for one in arms for cell in one.cells))
            for name, arms in runs.items()
        ),
    )


def _summary(runs: list[tuple[Added, ...]]) -> str:
    by_arm: dict[str, list[Added]] = {}
    for one in (one for arms in runs for one in arms):
        by_arm.setdefault(one.arm, []).append(one)
    rows = []
    for arm, each in by_arm.items():
        percents = [100 * one.relative for one in each]
        kernels_ns = [one.kernel_ns for one in each]
        rows.append(
            (
                arm,
                str(len(each)),
                spread(percents, 1),
                spread(kernels_ns, 0),
            )
        )
    return table(("arm",), ("runs", "added, % of the pass", "ns a kernel"), rows)


def costs_table(folder: Path) -> str:
    """The calibrated cost of a kernel by its blocks, over all calibrations of runs."""
    by_blocks: dict[int, list[KernelCost]] = {}
    found = (cost for _, run in runs_in(folder) for cost in run.header.observer_costs)
    for cost in dict.fromkeys(found):  # runs made together may share a calibration
        by_blocks.setdefault(cost.blocks, []).append(cost)
    if not by_blocks:
        return "Not recorded yet: no run has a calibrated cost."
    rows = []
    for blocks, costs in sorted(by_blocks.items()):
        half_ns = median((cost.high_ns - cost.low_ns) / 2 for cost in costs)
        rows.append(
            (
                format_number(blocks, 0),
                str(len(costs)),
                spread([cost.added_ns for cost in costs], 0),
                format_number(half_ns, 0),
            )
        )
    return table(
        ("blocks",),
        ("calibrations", "added, ns a kernel", "half of an interval, ns"),
        rows,
    )
