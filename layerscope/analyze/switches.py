"""What each switch of a backend does: alone, beside all others, and by overlap or not.

All differences are paired by round, between arms of one study. Negative means that the
switch makes a pass faster.
"""

from dataclasses import dataclass
from typing import Final, TypeAlias

import polars as pl

from layerscope.analyze.bootstrap import Estimate, estimate
from layerscope.analyze.doses import DoseTest, dose_test
from layerscope.analyze.pass_times import pass_times
from layerscope.analyze.statistics import ANCHOR, anchor
from layerscope.analyze.verdicts import Comparison, judge, pair_rounds
from layerscope.experiment import CAPTURED, SERIAL
from layerscope.passes import PASS_KEYS, used_passes
from layerscope.run import Run
from layerscope.switches import SwitchArms, TakenApart

Graph: TypeAlias = tuple[str, str]
"""An arm, and the experiment on its graph."""

_ROUND: Final = ("capture", "round")
_OFF, _ON = "off", "on"


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """Two arms that differ by one switch."""

    off: str
    """The arm without it."""

    on: str
    """The arm with it."""

    change: Comparison | None
    """On minus off; None where one of the two was left out."""

    serial: Comparison | None
    """The same of their serial twins, where no edge is programmatic."""

    is_equal: bool | None
    """Whether their outputs have the same bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchEffect:
    """What one switch does."""

    switch: SwitchArms

    added: Turned
    """Turned on where all others are off."""

    last: Turned
    """Turned on where all others are on: what leaving it out costs."""

    doses: DoseTest | None
    """None where none was asked for, or too few were measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmOfSwitches:
    """One of the arms between which switches are turned."""

    arm: str
    pass_ns: Estimate

    change: Comparison | None
    """Against the arm with all switches off; None of that itself."""

    kernels: float | None
    """A pass; None where nothing was recorded."""

    programmatic: int | None
    """Programmatic edges of the longest graph as captured; None without graphs."""

    edges: int | None
    """All edges of that graph."""


@dataclass(frozen=True, slots=True)
class Together:
    """Whether the effects of single switches add up."""

    together: Estimate
    """All on minus all off."""

    one_by_one: Estimate
    """The sum of the effects of each switch alone."""

    beyond: Estimate
    """The former minus the latter: 0 where switches do not act on each other."""


@dataclass(frozen=True, slots=True)
class Mechanisms:
    """A backend taken apart."""

    backend: str
    arms: tuple[ArmOfSwitches, ...]
    effects: tuple[SwitchEffect, ...]
    """Of switches that are not idle."""

    together: Together | None
    """None where an arm is missing, or there is one switch only."""

    builds: Estimate | None
    """How much longer a pass of the second build of the arm with all switches off is
    than of the first; None where there is none."""

    idle: tuple[SwitchArms, ...] = ()
    """Switches that change nothing here, and have no arms."""


def mechanisms(run: Run, floor_ns: float) -> tuple[Mechanisms, ...]:
    """Every backend whose switches the study tells apart.

    Args:
        run: a measured one; its arms that failed are left out.
        floor_ns: a difference up to it is none, nor is one up to that of two builds of
            the arm with all switches off.
    """
    if not run.header.study.taken_apart:
        return ()
    anchors = run.samples.filter(pl.col("phase") == ANCHOR)
    read = _Reading(run, pass_times(anchors), floor_ns)
    return tuple(read.backend(apart) for apart in run.header.study.taken_apart)


class _Reading:
    """Reads a run arm by arm."""

    def __init__(self, run: Run, times: pl.DataFrame, floor_ns: float) -> None:
        self._run = run
        self._times = times
        self._study_floor_ns = self._floor_ns = floor_ns
        self._sampled = {*times["arm"].unique()}

    def backend(self, apart: TakenApart) -> Mechanisms:
        self._floor_ns = self._study_floor_ns
        builds = self._compare((apart.off, CAPTURED), (apart.rebuilt, CAPTURED))
        if builds is not None:
            ends = builds.difference.low, builds.difference.high
            self._floor_ns = max(self._study_floor_ns, *map(abs, ends))
        turned = [switch for switch in apart.switches if not switch.idle]
        effects = tuple(self._effect(apart, switch) for switch in turned)
        names = [
            apart.off,
            apart.rebuilt,
            *(switch.only for switch in turned),
            *(switch.without for switch in turned),
            apart.on,
        ]
        arms = [name for name in dict.fromkeys(names) if name in self._sampled]
        return Mechanisms(
            backend=apart.backend,
            arms=tuple(self._arm(apart, arm) for arm in arms),
            effects=effects,
            together=self._together(apart),
            builds=None if builds is None else builds.difference,
            idle=tuple(switch for switch in apart.switches if switch.idle),
        )

    def _effect(self, apart: TakenApart, switch: SwitchArms) -> SwitchEffect:
        return SwitchEffect(
            switch=switch,
            added=self._turned(apart.backend, switch, apart.off, switch.only),
            last=self._turned(apart.backend, switch, switch.without, apart.on),
            doses=dose_test(
                self._run.header,
                self._times,
                switch.delayed,
                (switch.without, apart.on),
                self._floor_ns,
            ),
        )

    def _turned(self, backend: str, switch: SwitchArms, off: str, on: str) -> Turned:
        twins = self._twin(off), self._twin(on)
        checks = {
            (check.backend, check.switch, check.off, check.on): check.is_equal
            for check in self._run.header.bits
        }
        return Turned(
            off=off,
            on=on,
            change=self._compare((off, CAPTURED), (on, CAPTURED)),
            serial=self._compare((off, twins[0]), (on, twins[1])),
            is_equal=checks.get((backend, switch.name, off, on)),
        )

    def _twin(self, arm: str) -> str:
        """The experiment whose samples are those of the arm's serial twin, if any."""
        outcomes = {
            trial.outcome
            for trial in self._run.header.trials
            if trial.arm == arm and trial.experiment == SERIAL
        }
        if "same" in outcomes:
            return CAPTURED
        return SERIAL.name if "measured" in outcomes else ""

    def _compare(self, off: Graph, on: Graph) -> Comparison | None:
        rows = [self._rounds(graph) for graph in (off, on)]
        if any(each.is_empty() for each in rows):
            return None
        both = pl.concat(
            each.with_columns(arm=pl.lit(end))
            for each, end in zip(rows, (_OFF, _ON), strict=True)
        )
        return judge(pair_rounds(both, _OFF, _ON), self._floor_ns)

    def _rounds(self, graph: Graph) -> pl.DataFrame:
        arm, experiment = graph
        return self._times.filter(
            pl.col("arm") == arm, pl.col("experiment") == experiment
        ).select(*_ROUND, "pass_ns")

    def _arm(self, apart: TakenApart, arm: str) -> ArmOfSwitches:
        edges = self._run.edges.filter(
            pl.col("arm") == arm, pl.col("experiment") == CAPTURED
        )
        kernels = used_passes(
            self._run.kernels.filter(
                pl.col("arm") == arm, pl.col("experiment") == CAPTURED
            )
        )
        passes = kernels.select(PASS_KEYS).n_unique()
        has_edges = not edges.is_empty()
        is_base = arm == apart.off
        compared = (apart.off, CAPTURED), (arm, CAPTURED)
        return ArmOfSwitches(
            arm=arm,
            pass_ns=anchor(self._times, arm),
            change=None if is_base else self._compare(*compared),
            kernels=kernels.height / passes if passes else None,
            programmatic=int(edges["programmatic"].sum()) if has_edges else None,
            edges=edges.height if has_edges else None,
        )

    def _together(self, apart: TakenApart) -> Together | None:
        alone = [switch.only for switch in apart.switches if not switch.idle]
        if len(alone) < 2 or not self._sampled.issuperset(  # noqa: PLR2004 (a sum)
            {apart.off, apart.on, *alone}
        ):
            return None
        rounds = self._rounds((apart.off, CAPTURED)).rename({"pass_ns": "off"})
        for number, arm in enumerate([apart.on, *alone]):
            column = pl.col("pass_ns").alias(f"arm{number}")
            mine = self._rounds((arm, CAPTURED)).select(*_ROUND, column)
            rounds = rounds.join(mine, on=_ROUND)
        effects = [
            pl.col(f"arm{number}") - pl.col("off") for number in range(1 + len(alone))
        ]
        told = rounds.select(
            *_ROUND, together=effects[0], one_by_one=pl.sum_horizontal(effects[1:])
        ).with_columns(beyond=pl.col("together") - pl.col("one_by_one"))
        return Together(
            *(estimate(told, name) for name in ("together", "one_by_one", "beyond"))
        )
