"""The self-test as a report: what is planted, and what was found of it."""

import math
from collections.abc import Iterator, Sequence
from typing import Final

from layerscope.analyze.causes import Cause
from layerscope.environment import DeviceFacts
from layerscope.report import Cell, Column, Fact, Interval, Kind, Report, Table
from layerscope.selftest.cases import CASES
from layerscope.selftest.judging import TOLERANCE, Outcome
from layerscope.selftest.mixtures import MIXTURES
from layerscope.selftest.plan import MIXED_NAME
from layerscope.units import format_number

_LISTED: Final = (
    Column("case", "case", Kind.TEXT),
    Column("difference", "differs in", Kind.TEXT),
    Column("expected", "expected on", Kind.TEXT),
)
_OUTCOMES: Final = (
    Column("case", "case", Kind.TEXT),
    Column("change_ns", "change", Kind.INTERVAL),
    Column("expected", "expected on", Kind.TEXT),
    Column("on_planted_percent", "there, %", Kind.COUNT),
    Column("residual_ns", "residual", Kind.CHANGE),
    Column("verdict", "verdict", Kind.TEXT),
    Column("found", "found", Kind.TEXT),
)
_ADDED: Final = (
    Column("mixture", "mixture", Kind.TEXT),
    Column("cause", "cause", Kind.TEXT),
    Column("line_ns", "by the ledger", Kind.CHANGE),
    Column("marginal_ns", "when added", Kind.CHANGE),
    Column("apart_percent", "apart, % of the change", Kind.COUNT),
)


def cases_report() -> Report:
    """What would be planted."""
    rows: list[tuple[Cell, ...]] = [
        (case.name, case.difference, _lines(case.expected)) for case in CASES
    ]
    mixtures = "; ".join(" + ".join(mixture) for mixture in MIXTURES)
    rows.append(
        (MIXED_NAME, f"causes are added one by one: {mixtures}", "each its own")
    )
    return Report(
        title="selftest: pairs of arms with a planted cause",
        facts=(),
        tables=(Table("cases", _LISTED, tuple(rows)),),
    )


def outcomes_report(outcomes: Sequence[Outcome], device: DeviceFacts) -> Report:
    """What was found, case by case.

    Args:
        outcomes: of all studies that were made.
        device: on which.
    """
    passed = sum(outcome.judged.passed for outcome in outcomes)
    tables = (
        Table("planted causes", _OUTCOMES, tuple(map(_row, outcomes))),
        Table("mixtures", _ADDED, tuple(_added(outcomes))),
    )
    bound = format_number(100 * TOLERANCE, 0)
    return Report(
        title=f"selftest: {passed} of {len(outcomes)} passed",
        facts=(
            Fact("device", ", ".join(filter(None, (device.name, device.architecture)))),
            Fact("driver", device.driver),
        ),
        tables=tuple(table for table in tables if table.rows),
        notes=(
            (
                f"a saving passes with all but {bound} % of it on the expected lines, "
                f"a mixture with each line within {bound} % of its change of what "
                "adding the cause changed"
            ),
        ),
        warnings=tuple(_warnings(outcomes)),
    )


def _lines(causes: frozenset[Cause]) -> str | None:
    return " + ".join(cause.value for cause in Cause if cause in causes) or None


def _row(outcome: Outcome) -> tuple[Cell, ...]:
    judged, ledger, change = outcome.judged, outcome.ledger, outcome.change
    share = judged.share_on_planted
    interval = None
    if change is not None:
        found = change.difference
        interval = Interval(found.value, found.low, found.high, change.relative)
    return (
        outcome.name,
        interval,
        _lines(outcome.expected),
        None if math.isnan(share) else 100 * share,
        None if ledger is None else ledger.residual.value,
        "pass" if judged.passed else "FAIL",
        judged.text,
    )


def _added(outcomes: Sequence[Outcome]) -> Iterator[tuple[Cell, ...]]:
    for outcome in outcomes:
        for one in outcome.added:
            numbers = (one.line_ns, one.marginal_ns, 100 * one.apart)
            yield outcome.name, one.name, *numbers


def _warnings(outcomes: Sequence[Outcome]) -> Iterator[str]:
    told = [f"{each.name}: {text}" for each in outcomes for text in each.warnings]
    yield from dict.fromkeys(told)
