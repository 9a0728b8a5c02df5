"""The dose test of a switch that lets kernels start early.

A kernel spins before one that starts early. What that one does before it waits goes on
meanwhile, so the switch saves more the longer the spin is, until all early work is
done during it. A saving that does not rise has another cause, or its early work was
done in time without a spin.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import polars as pl

from layerscope.analyze.bootstrap import Estimate, estimate
from layerscope.analyze.verdicts import Verdict, verdict_on
from layerscope.experiment import Experiment
from layerscope.run_header import RunHeader

_ROUND: Final = ("capture", "round")


class Rise(StrEnum):
    """How the saving goes with the dose."""

    STAYS = "rises, then stays"
    GOES_ON = "still rises at the longest"
    NONE = "does not rise"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dose:
    """One length of the spin."""

    delay_ns: int

    without_ns: Estimate
    """A pass without the switch."""

    with_ns: Estimate
    """A pass with it."""

    saving_ns: Estimate
    """The former minus the latter, paired by round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DoseTest:
    """A switch under all doses."""

    delayed: str
    """What the spin is before, as `Experiment.delay`."""

    doses: tuple[Dose, ...]
    """By length, ascending."""

    rise: Rise

    reached_ns: int | None
    """The shortest dose whose saving is not told from that of the longest, where the
    saving rises."""

    reason: str
    """Why it is not known whether it rises, or does not; may be empty."""


def dose_test(
    header: RunHeader,
    times: pl.DataFrame,
    delayed: str,
    arms: tuple[str, str],
    floor_ns: float,
) -> DoseTest | None:
    """What the doses before `delayed` make of what a switch saves.

    Args:
        header: of the run; says which doses were measured.
        times: `pass_times` of the anchor phase.
        delayed: as `Experiment.delay`; empty where there is nothing to delay.
        arms: that without the switch, and that with it.
        floor_ns: a difference up to it is none.

    Returns:
        None where fewer than two doses were measured on both arms.
    """
    experiments = _measured(header, delayed, arms) if delayed else []
    savings = {
        experiment.delay_ns: _savings(times, experiment, arms)
        for experiment in experiments
    }
    told = {dose: rows for dose, rows in sorted(savings.items()) if rows.height}
    if len(told) < 2:  # noqa: PLR2004 (a rise needs two)
        return None
    rise, reached_ns, reason = _rise(told, floor_ns)
    return DoseTest(
        delayed=delayed,
        doses=tuple(
            Dose(
                delay_ns=dose,
                without_ns=estimate(rows, "without_ns"),
                with_ns=estimate(rows, "with_ns"),
                saving_ns=estimate(rows, "saving_ns"),
            )
            for dose, rows in told.items()
        ),
        rise=rise,
        reached_ns=reached_ns,
        reason=reason,
    )


def _measured(header: RunHeader, delayed: str, arms: Sequence[str]) -> list[Experiment]:
    """The delays before `delayed` alone that were measured on all of `arms`."""
    found = [
        {
            trial.experiment
            for trial in header.trials
            if trial.arm == arm and trial.outcome == "measured"
        }
        for arm in arms
    ]
    return [
        one
        for one in set.intersection(*found)
        if one == Experiment(delay=delayed, delay_ns=one.delay_ns)
    ]


def _savings(
    times: pl.DataFrame, experiment: Experiment, arms: tuple[str, str]
) -> pl.DataFrame:
    """The rounds of both arms: without_ns, with_ns, and the former minus the latter."""
    without, with_it = (
        times.filter(
            pl.col("arm") == arm, pl.col("experiment") == experiment.name
        ).select(*_ROUND, pl.col("pass_ns").alias(column))
        for arm, column in zip(arms, ("without_ns", "with_ns"), strict=True)
    )
    return without.join(with_it, on=_ROUND).with_columns(
        saving_ns=pl.col("without_ns") - pl.col("with_ns")
    )


def _rise(
    savings: Mapping[int, pl.DataFrame], floor_ns: float
) -> tuple[Rise, int | None, str]:
    """How savings go with the dose, from which on they stay, and what is not clear."""
    *shorter, longest = savings
    for number, dose in enumerate(shorter):
        verdict, reason = _beyond(savings[dose], savings[longest], floor_ns)
        if verdict is Verdict.UNKNOWN:
            return Rise.UNKNOWN, None, reason
        if verdict is not Verdict.SLOWER:  # the longest does not save more
            is_first = number == 0
            why = reason or "it falls"
            return (Rise.NONE, None, why) if is_first else (Rise.STAYS, dose, "")
    return Rise.GOES_ON, longest, ""


def _beyond(
    shorter: pl.DataFrame, longest: pl.DataFrame, floor_ns: float
) -> tuple[Verdict, str]:
    """Whether the longest dose saves more; `Verdict.SLOWER` says that it does."""
    both = shorter.join(longest, on=_ROUND, suffix="_longest").with_columns(
        more_ns=pl.col("saving_ns_longest") - pl.col("saving_ns")
    )
    found = estimate(both, "more_ns")
    return verdict_on(found, both["capture"].n_unique(), floor_ns)
