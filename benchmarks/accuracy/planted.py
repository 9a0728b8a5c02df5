"""Whether the ledger puts a planted change where it was planted."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from benchmarks.accuracy.markdown import percent, plus_minus, table, within
from layerscope.analyze.attribution import changes, records
from layerscope.analyze.bootstrap import estimate, independent_difference
from layerscope.analyze.causes import Cause, Corners, Ledger
from layerscope.analyze.ledger import ledger
from layerscope.analyze.shares import pass_shares
from layerscope.analyze.statistics import (
    Comparison,
    anchor,
    compare,
    noise_floor,
    observer_effect,
    paired,
    pass_times,
)
from layerscope.analyze.twins import serial_twin
from layerscope.experiment import CAPTURED
from layerscope.run import HEADER_FILE, Run, load
from layerscope.selftest.cases import BASE, CASES, OTHER, Case, Demand
from layerscope.selftest.judging import Judged, judge, judge_mixture
from layerscope.selftest.mixtures import MIXTURES, arm_before
from layerscope.selftest.plan import MIXED_NAME
from layerscope.study import AA_SUFFIX
from layerscope.units import MICROSECONDS, NOTHING

ARMS: Final = (BASE, OTHER)

PLANTED_FILE: Final = "planted.json"
"""Says of the cases of a folder that have been changed since what they were."""


class Planted(msgspec.Struct, forbid_unknown_fields=True):
    """What a case was when its run was recorded."""

    difference: str
    expected: list[Cause]
    demand: Demand


@dataclass(frozen=True)
class Recorded:
    """A case and its run."""

    case: Case
    run: Run

    @cached_property
    def times(self) -> pl.DataFrame:
        """`pass_times` of the run."""
        return pass_times(self.run.samples)

    @cached_property
    def ledger(self) -> Ledger:
        """Of its two arms."""
        return ledger(self.run, BASE, OTHER)

    @cached_property
    def change(self) -> Comparison:
        """Its arms against each other."""
        floor_ns = noise_floor(self.times, BASE, f"{BASE}{AA_SUFFIX}")
        return compare(self.times, BASE, OTHER, floor_ns)


def recorded(folder: Path) -> Iterator[Recorded]:
    """The cases that `folder` has runs of, as they were planted in these."""
    cases = {case.name: case for case in CASES}
    file = folder / PLANTED_FILE
    if file.is_file():
        earlier = msgspec.json.decode(file.read_bytes(), type=dict[str, Planted])
        cases |= {name: _as_planted(name, each) for name, each in earlier.items()}
    for case in cases.values():
        if (folder / case.name / HEADER_FILE).is_file():
            yield Recorded(case, load(folder / case.name))


def _as_planted(name: str, planted: Planted) -> Case:
    return Case(
        name=name,
        difference=planted.difference,
        base=(),
        other=(),
        expected=frozenset(planted.expected),
        demand=planted.demand,
    )


def planted_table(folder: Path) -> str:
    """Change, share on the expected lines, residual and verdict of every case."""
    found = [*recorded(folder)]
    verdicts = [judge(each.case, each.ledger, each.change) for each in found]
    passed = sum(judged.passed for judged in verdicts)
    shown = table(
        ("case", "differs in", "expected on"),
        ("change, µs", "there", "residual, µs"),
        map(_planted_row, found, verdicts),
        ("verdict",),
    )
    return f"{passed} of {len(found)} cases pass.\n\n{shown}"


def _planted_row(each: Recorded, judged: Judged) -> tuple[str, ...]:
    case = each.case
    lines = " + ".join(cause for cause in Cause if cause in case.expected)
    verdict = "pass" if judged.passed else "**FAIL**"
    return (
        case.name,
        case.difference,
        lines or NOTHING,
        within(each.change.difference),
        percent(judged.share_on_planted, signed=False),
        within(each.ledger.residual),
        f"{verdict}: {judged.text}",
    )


def overlap_table(folder: Path) -> str:
    """The four times of every case of which an arm is not serial as it is."""
    heads = ("captured, µs", "serial twin, µs", "overlap gives, µs")
    rows = [
        (each.case.name, *_corner_cells(each.ledger.corners))
        for each in recorded(folder)
        if each.ledger.corners is not None
        and {CAPTURED} != {serial_twin(each.run, arm).experiment for arm in ARMS}
    ]
    return table(("case",), [f"{arm}: {head}" for arm in ARMS for head in heads], rows)


def _corner_cells(corners: Corners) -> tuple[str, ...]:
    return (
        plus_minus(corners.base, signed=False),
        plus_minus(corners.base_serial, signed=False),
        plus_minus(corners.base_benefit),
        plus_minus(corners.other, signed=False),
        plus_minus(corners.other_serial, signed=False),
        plus_minus(corners.other_benefit),
    )


def records_table(folder: Path) -> str:
    """What CUPTI added to every serial twin, and what is left of it once corrected."""
    return table(
        ("case", "arm"),
        ("kernels", "added, µs", "subtracted, µs", "left, µs", "left, of the pass"),
        (
            _records_row(each, arm, twin)
            for each in recorded(folder)
            for arm in ARMS
            if (twin := serial_twin(each.run, arm).experiment)
        ),
    )


def _records_row(each: Recorded, arm: str, twin: str) -> tuple[str, ...]:
    run, shares = each.run, pass_shares(each.run.kernels)
    side = records(run.kernels, arm, twin)
    corrected = (
        changes(side, side, run.header.observer_costs)
        .group_by("capture", "round")
        .agg(pl.col("base_ns").sum())
    )
    unprofiled = anchor(each.times, arm, experiment=twin)
    added = observer_effect(shares, each.times, arm, experiment=twin)
    left = independent_difference(estimate(corrected, "base_ns"), unprofiled)
    return (
        each.case.name,
        arm,
        str(side.typical.kernels.height),
        plus_minus(added),
        MICROSECONDS.format(added.value - left.value),
        plus_minus(left),
        percent(left.value / unprofiled.value),
    )


def mixtures_table(folder: Path) -> str:
    """What the ledger says of each cause of a mixture, and what adding it changed."""
    if not (folder / MIXED_NAME / HEADER_FILE).is_file():
        return "Not recorded yet: there is no run of mixtures."
    run = load(folder / MIXED_NAME)
    times = pass_times(run.samples)
    rows = []
    for names in MIXTURES:
        found = ledger(run, arm_before(names[0]), names[-1])
        marginals = {name: paired(times, arm_before(name), name) for name in names}
        judged, added = judge_mixture(found, marginals)
        verdict = "pass" if judged.passed else f"**FAIL**: {judged.text}"
        for one in added:
            line, marginal = (
                MICROSECONDS.format(ns, signed=True)
                for ns in (one.line_ns, one.marginal_ns)
            )
            apart = percent(one.apart)
            rows.append((" + ".join(names), one.name, line, marginal, apart, verdict))
    return table(
        ("mixture", "cause"),
        ("by the ledger, µs", "when added, µs", "apart, of the change"),
        rows,
        ("verdict",),
    )
