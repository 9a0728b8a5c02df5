"""The ledger of two arms: its headline, its tables, and how to read them."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.causes import Cause, Ledger
from layerscope.analyze.ledger import JITTER
from layerscope.analyze.statistics import Comparison, Verdict
from layerscope.regions import in_order
from layerscope.report.document import Cell, Column, Fact, Interval, Kind, Table
from layerscope.units import (
    TimeScale,
    estimate_scale,
    format_estimate,
    format_ns,
)

OBSERVED: Final = "observed"

_CAUSES: Final = (
    Column("cause", "cause", Kind.TEXT),
    Column("change_ns", "change", Kind.INTERVAL),
)
_CORNERS: Final = (
    Column("arm", "arm", Kind.TEXT),
    Column("captured_ns", "captured", Kind.INTERVAL),
    Column("serial_ns", "serial twin", Kind.INTERVAL),
    Column("benefit_ns", "overlap's benefit", Kind.INTERVAL),
)
_PART_DECIMALS: Final = 1
"""A residual must not round to nothing where the change is large."""

_ALONE: Final = (Cause.OVERLAP, Cause.GAPS, Cause.SAME, Cause.FASTER, Cause.REPLACED)
"""Causes that a headline names by themselves; the others are fusion."""


def headline(ledger: Ledger, comparison: Comparison | None, against: str) -> Fact:
    """The change and what it comes from, in one line.

    Parts that the line's decimals show as nothing are left out; the residual is not.

    Args:
        ledger: of the two arms.
        comparison: of their anchors; None where there are none.
        against: what the change is against, in words.
    """
    label = f"{ledger.other} {against}"
    change = ledger.change
    if comparison is not None and comparison.difference.samples:
        change = comparison.difference
        told = format_estimate(
            change.value, change.low, change.high, comparison.relative
        )
        if comparison.verdict is Verdict.NO_DIFFERENCE:
            return Fact(label, f"no difference, {comparison.reason}: {told}")
        if comparison.verdict is Verdict.UNKNOWN:
            return Fact(label, f"{told}, unknown: {comparison.reason}")
    else:
        relative = change.value / ledger.base_ns
        told = format_estimate(change.value, change.low, change.high, relative)
    if ledger.unknown:
        return Fact(label, f"{told}, unknown from what: {ledger.unknown}")
    scale = estimate_scale(change.value, change.low, change.high)
    scale = replace(scale, decimals=max(scale.decimals, _PART_DECIMALS))
    if ledger.basis == OBSERVED:
        told += f"; in records {scale.format(ledger.change.value, signed=True)}"
    return Fact(label, f"{told}: {', '.join(_parts(ledger, scale))}")


def _parts(ledger: Ledger, scale: TimeScale) -> Iterator[str]:
    """What the change comes from, in the unit of `scale`, largest groups by name."""
    values = {line.cause: line.change.value for line in ledger.lines}
    named = {cause.value: values.get(cause, 0.0) for cause in _ALONE}
    overlap, *others = named.items()
    for name, value in (overlap, ("fusion", ledger.fusion), *others):
        if scale.format(value) != scale.format(0):
            yield f"{name} {scale.format(value, signed=True)}"
    residual = ledger.residual
    half_ns = max(residual.high - residual.value, residual.value - residual.low)
    left = scale.format(residual.value, signed=True)
    yield f"residual {left} ± {scale.format(half_ns)}"


def ledger_tables(ledger: Ledger, against: str) -> Iterator[Table]:
    """The causes, region by region, and the 2 x 2 that overlap is from.

    None where nothing can be attributed.

    Args:
        ledger: of two arms.
        against: what the change is against, in words.
    """
    if ledger.unknown:
        return
    lines = [(line.cause.value, line.change) for line in ledger.lines]
    rows = [*lines, ("residual", ledger.residual), ("change", ledger.change)]
    basis = "in records" if ledger.basis == OBSERVED else "by experiments"
    yield Table(
        title=f"ledger of {ledger.other}, {basis}, {against}",
        columns=_CAUSES,
        rows=tuple((name, _change(value, ledger.base_ns)) for name, value in rows),
        has_total=True,
    )
    if ledger.regions:
        yield region_ledger(ledger, against)
    if ledger.corners is not None:
        corners = ledger.corners
        yield Table(
            title=f"overlap of {ledger.other} and of {ledger.base}, one pass",
            columns=_CORNERS,
            rows=tuple(
                (arm, *(Interval(each.value, each.low, each.high) for each in times))
                for arm, *times in (
                    (
                        ledger.base,
                        corners.base,
                        corners.base_serial,
                        corners.base_benefit,
                    ),
                    (
                        ledger.other,
                        corners.other,
                        corners.other_serial,
                        corners.other_benefit,
                    ),
                )
            ),
        )


def _change(found: Estimate, base_ns: float) -> Interval:
    return Interval(found.value, found.low, found.high, found.value / base_ns)


def region_ledger(ledger: Ledger, against: str) -> Table:
    """The lines that are from records: a region a row, a cause a column.

    Args:
        ledger: of two arms, whose causes are known.
        against: what the change is against, in words.
    """
    causes = [
        cause
        for cause in Cause
        if any(
            found[cause].value for found in ledger.regions.values() if cause in found
        )
    ]
    rows: list[tuple[Cell, ...]] = []
    for region in in_order(ledger.regions):
        found = ledger.regions[region]
        values = [found[cause].value if cause in found else None for cause in causes]
        known = [value for value in values if value is not None]
        rows.append((region, *values, sum(known)))
    whose = "captured graphs" if ledger.basis == OBSERVED else "serial twins"
    return Table(
        title=f"ledger of {ledger.other} by region, records of {whose}, {against}",
        columns=(
            Column("region", "region", Kind.REGION),
            *(
                Column(f"{cause.name.lower()}_ns", cause.value, Kind.CHANGE)
                for cause in causes
            ),
            Column("sum_ns", "sum", Kind.CHANGE),
        ),
        rows=tuple(rows),
    )


def ledger_notes(ledger: Ledger) -> Iterator[str]:
    """What a reader must know of this ledger."""
    if ledger.unknown:
        yield f"{ledger.other}: no ledger: {ledger.unknown}"
        return
    corners = ledger.corners
    if corners is not None:
        yield (
            f"overlap gives {format_ns(corners.base_benefit.value)} to the kernels of "
            f"{ledger.base} and {format_ns(corners.other_benefit.value)} to those of "
            f"{ledger.other}: between the two is what it is worth, in whichever order "
            "causes are taken"
        )
    least_ns = JITTER * ledger.base_ns
    if ledger.basis == OBSERVED and max(ledger.hidden.values(), default=0) > least_ns:
        hidden = [f"{arm} {format_ns(value)}" for arm, value in ledger.hidden.items()]
        yield (
            f"hidden behind other kernels, a pass: {', '.join(hidden)}; "
            "that is no line of an observed ledger"
        )
    yield from (f"{ledger.other}: {note}" for note in ledger.notes)
