"""The serial twins of two arms: which rows are theirs, and what overlap gives."""

from dataclasses import dataclass
from typing import Final, TypeAlias

import polars as pl

from layerscope.analyze.bootstrap import Estimate, estimate
from layerscope.analyze.causes import Corners
from layerscope.analyze.statistics import ANCHOR
from layerscope.experiment import CAPTURED, SERIAL
from layerscope.run import Run

Graphs: TypeAlias = tuple[str, str]
"""An arm, and the experiment whose rows are those of its serial twin."""

_ROUND: Final = ("capture", "round")


@dataclass(frozen=True, slots=True)
class Twin:
    """The serial twin of an arm."""

    experiment: str
    """The experiment whose rows are its: that of the captured graph where the graph is
    serial already; empty where there is none."""

    reason: str = ""
    """Why there is none."""


@dataclass(frozen=True, slots=True)
class Benefits:
    """What overlap gives two arms."""

    corners: Corners

    overlap: Estimate
    """Benefit of the base minus that of the other: its part of the change, in ns."""

    serial_change: Estimate
    """Other minus base, of the serial twins, in ns."""


def serial_twin(run: Run, arm: str) -> Twin:
    """Where the serial twin of `arm` is to be found, or why there is none."""
    if not run.header.trials:
        return Twin("", "no serial twin was asked for")
    trial = next(
        (t for t in run.header.trials if t.arm == arm and t.experiment == SERIAL), None
    )
    if trial is None:
        return Twin("", f"{arm} has no serial twin: none was asked for")
    if trial.outcome not in ("measured", "same"):
        why = f" ({trial.reason})" if trial.reason else ""
        return Twin("", f"{arm} has no serial twin: it was {trial.outcome}{why}")
    name = SERIAL.name if trial.outcome == "measured" else CAPTURED
    mine = (pl.col("arm") == arm) & (pl.col("experiment") == name)
    if run.samples.filter(mine, pl.col("phase") == ANCHOR).is_empty():
        return Twin("", f"the serial twin of {arm} was not timed")
    if run.kernels.filter(mine).is_empty():
        return Twin("", f"the serial twin of {arm} was not recorded")
    return Twin(name)


def benefits(times: pl.DataFrame, base: Graphs, other: Graphs) -> Benefits:
    """What overlap gives two arms, by anchors alone.

    The change in benefit is paired: all four graphs are timed in every round.

    Args:
        times: from `statistics.pass_times`.
        base: the arm compared with, and its twin.
        other: the arm compared, and its twin.
    """
    base_ns, base_serial_ns = _times_of(times, base, "base")
    other_ns, other_serial_ns = _times_of(times, other, "other")
    gains = {
        "base": pl.col("base_serial_ns") - pl.col("base_ns"),
        "other": pl.col("other_serial_ns") - pl.col("other_ns"),
    }
    rounds = base_ns
    for graph in (base_serial_ns, other_ns, other_serial_ns):
        rounds = rounds.join(graph, on=_ROUND)
    rounds = rounds.select(
        *_ROUND,
        **gains,
        overlap=gains["base"] - gains["other"],
        serial=pl.col("other_serial_ns") - pl.col("base_serial_ns"),
    )
    corners = Corners(
        base=estimate(base_ns, "base_ns"),
        base_serial=estimate(base_serial_ns, "base_serial_ns"),
        other=estimate(other_ns, "other_ns"),
        other_serial=estimate(other_serial_ns, "other_serial_ns"),
        base_benefit=estimate(rounds, "base"),
        other_benefit=estimate(rounds, "other"),
    )
    return Benefits(corners, estimate(rounds, "overlap"), estimate(rounds, "serial"))


def _times_of(
    times: pl.DataFrame, graphs: Graphs, name: str
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The rounds of an arm's captured graph (`name`_ns) and of its twin's."""
    arm, twin = graphs
    mine = times.filter(pl.col("arm") == arm, pl.col("phase") == ANCHOR)
    captured, serial = (
        mine.filter(pl.col("experiment") == experiment).select(
            *_ROUND, pl.col("pass_ns").alias(column)
        )
        for experiment, column in (
            (CAPTURED, f"{name}_ns"),
            (twin, f"{name}_serial_ns"),
        )
    )
    return captured, serial
