"""Arms against each other of which at least one was observed in a trace."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from layerscope.analyze.causes import Cause, Ledger
from layerscope.analyze.facing import SIDES, Passes, passes_of
from layerscope.analyze.observed import Observed, observe
from layerscope.passes import GRAPH_PASS_KEYS, REPLAY_KEYS
from layerscope.report.distinct_names import distinct_names
from layerscope.report.document import Cell, Column, Fact, Kind, Report, Table
from layerscope.report.ledger import ledger_notes, region_ledger
from layerscope.report.table_sets import counting_copies
from layerscope.report.work import noun
from layerscope.run import Run
from layerscope.units import (
    TimeScale,
    estimate_scale,
    format_ns,
    format_percent,
    format_things,
)

_ARMS: Final = (
    Column("arm", "arm", Kind.TEXT),
    Column("passes", "passes", Kind.COUNT),
    Column("compared", "compared", Kind.COUNT),
    Column("kernels", "kernels", Kind.COUNT),
    Column("pass_mean_ns", "mean", Kind.TIME),
    Column("gap_mean_ns", "gap", Kind.TIME),
    Column("duration_mean_ns", "sum", Kind.TIME),
    Column("hidden_mean_ns", "hidden", Kind.TIME),
    Column("step_mean_ns", "whole step", Kind.TIME),
)
_CAUSES: Final = (
    Column("cause", "cause", Kind.TEXT),
    Column("change_ns", "change", Kind.CHANGE),
)
_ROLES: Final = (
    Column("region", "region", Kind.REGION),
    Column("role", "role", Kind.TEXT),
    Column("name", "or kernel", Kind.TEXT),
    Column("base_kernels", "kernels before", Kind.COUNT),
    Column("other_kernels", "kernels", Kind.COUNT),
    Column("base_exclusive_ns", "exclusive before", Kind.TIME),
    Column("other_exclusive_ns", "exclusive", Kind.TIME),
    Column("exclusive_change_ns", "change", Kind.CHANGE),
    Column("gap_change_ns", "change of gaps", Kind.CHANGE),
)
_MIXED_ROLES: Final = (
    *_ROLES[:5],
    Column("base_mixed_ns", "with gaps before", Kind.TIME),
    Column("other_mixed_ns", "with gaps", Kind.TIME),
    Column("mixed_change_ns", "change", Kind.CHANGE),
)
"""The same where gaps cannot be told from kernels."""

_MOST_ROLES: Final = 20
_SMALL: Final = 0.001
"""Part of the base below which a cause is not in a headline."""

NOTES: Final = (
    (
        "observed: recordings under profilers, none repeated to learn how much it "
        "varies: no difference has an interval or a verdict"
    ),
    (
        "exclusive: what a kernel adds to the time of a pass; gap: idle time that it "
        "ends; lines add up to the change, and hidden time is in none of them"
    ),
)


@dataclass(frozen=True, slots=True)
class Side:
    """An arm of a run, and what it is called."""

    run: Run
    arm: str
    name: str

    def passes(self) -> Passes:
        """Those that are compared."""
        return passes_of(self.run, self.arm, self.name)


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two arms, and what they differ by."""

    base: Side
    other: Side
    found: Observed


def pair_of(base: Side, other: Side) -> Pair:
    """What `other` differs by from `base`."""
    return Pair(base, other, observe(base.passes(), other.passes()))


def pair_report(title: str, pairs: tuple[Pair, ...], facts: tuple[Fact, ...]) -> Report:
    """Every pair with its ledger; warnings are left to the caller.

    Args:
        title: of the report.
        pairs: at least one.
        facts: about the runs.
    """
    notes = [note for pair in pairs for note in ledger_notes(pair.found.ledger)]
    return Report(
        title=title,
        headlines=tuple(headline(pair) for pair in pairs),
        facts=facts,
        tables=tuple(
            table
            for pair in pairs
            for table in counting_copies(
                _tables(pair),
                pair.found.base.rows["kind"],
                pair.found.other.rows["kind"],
            )
        ),
        notes=(*NOTES, *notes),
    )


def headline(pair: Pair) -> Fact:
    """The change and what it comes from, in one line without any interval."""
    found = pair.found
    ledger = found.ledger
    label = f"{ledger.other} against {ledger.base}, observed"
    what = noun(pair.other.run.header.study.spec)
    change_ns, base_ns = ledger.change.value, ledger.base_ns
    other_ns = base_ns + change_ns
    told = (
        f"a {what} {format_ns(other_ns)} against {format_ns(base_ns)}, "
        f"{format_ns(change_ns, signed=True)} "
        f"({format_percent(change_ns / base_ns, signed=True)})"
        if base_ns
        else "nothing to compare"
    )
    if ledger.unknown:
        return Fact(label, f"{told}, unknown from what: {ledger.unknown}")
    largest_ns = max((abs(line.change.value) for line in ledger.lines), default=0.0)
    scale = estimate_scale(max(abs(change_ns), largest_ns), change_ns, change_ns)
    parts = ", ".join(_parts(ledger, scale))
    return Fact(label, f"{told}: {parts}" if parts else told)


def _parts(ledger: Ledger, scale: TimeScale) -> Iterator[str]:
    for line in sorted(ledger.lines, key=lambda line: -abs(line.change.value)):
        value_ns = line.change.value
        if abs(value_ns) > _SMALL * abs(ledger.base_ns):
            yield f"{line.cause} {scale.format(value_ns, signed=True)} {scale.unit}"


def _tables(pair: Pair) -> Iterator[Table]:
    ledger = pair.found.ledger
    against = f"against {ledger.base}"
    what = noun(pair.other.run.header.study.spec)
    yield Table(
        title=f"one {what}: {ledger.other} {against}, observed",
        columns=_ARMS,
        rows=tuple(_arm_rows(pair)),
    )
    if ledger.unknown:
        return
    rows: list[tuple[Cell, ...]] = [
        (line.cause.value, line.change.value)
        for line in ledger.lines
        if line.change.value
    ]
    yield Table(
        title=f"ledger of {ledger.other}, observed, {against}",
        columns=_CAUSES,
        rows=(*rows, ("change", ledger.change.value)),
        has_total=True,
    )
    yield replace(
        region_ledger(ledger, against),
        title=f"ledger of {ledger.other} by region, observed, {against}",
    )
    yield _role_table(pair)


def _arm_rows(pair: Pair) -> Iterator[tuple[Cell, ...]]:
    sides = ((pair.base, pair.found.base), (pair.other, pair.found.other))
    for (side, passes), compared in zip(sides, pair.found.compared, strict=True):
        rows, count = passes.rows, passes.count or 1
        sums = {
            name: int(rows[name].sum()) / count
            for name in ("gap_ns", "duration_ns", "exclusive_ns")
        }
        kernels = rows.group_by(GRAPH_PASS_KEYS).len()["len"].median()
        yield (
            side.name,
            passes.count,
            compared,
            None if kernels is None else float(str(kernels)),
            sums["gap_ns"] + sums["exclusive_ns"],
            sums["gap_ns"],
            sums["duration_ns"],
            sums["duration_ns"] - sums["exclusive_ns"],
            _step_ns(side),
        )


def _step_ns(side: Side) -> float | None:
    """Mean time of a whole replay, of a trace: from its first start to its last end."""
    if side.run.samples.height:
        return None
    own = side.run.kernels.filter(pl.col("arm") == side.arm)
    start = pl.col("pass_start_ns") + pl.col("start_ns")
    spans = own.group_by(REPLAY_KEYS).agg(
        span_ns=(start + pl.col("duration_ns")).max() - start.min()
    )
    return int(spans["span_ns"].sum()) / spans.height if spans.height else None


def _role_table(pair: Pair) -> Table:
    """The roles, or names, that changed most, and what all others add up to."""
    roles, ledger = pair.found.roles, pair.found.ledger
    mixed = (
        (pl.col(f"{side}_gap_ns") + pl.col(f"{side}_exclusive_ns")).alias(
            f"{side}_mixed_ns"
        )
        for side in SIDES
    )
    change = {
        f"{name}_change_ns": pl.col(f"other_{name}_ns").fill_null(0.0)
        - pl.col(f"base_{name}_ns").fill_null(0.0)
        for name in ("exclusive", "gap", "mixed")
    }
    told = roles.with_columns(mixed).with_columns(**change)
    is_mixed = any(line.cause is Cause.MIXED for line in ledger.lines)
    columns = _MIXED_ROLES if is_mixed else _ROLES
    keys = [column.key for column in columns[3:]]
    shown = told.head(_MOST_ROLES)
    names = distinct_names(shown.filter(~pl.col("is_role"))["kernel"])
    rows: list[tuple[Cell, ...]] = [
        (
            row["region"],
            row["kernel"] if row["is_role"] else None,
            None if row["is_role"] else names[row["kernel"]],
            *(row[key] for key in keys),
        )
        for row in shown.iter_rows(named=True)
    ]
    rest = told.slice(_MOST_ROLES)
    if rest.height:
        sums = rest.select(pl.col(keys).sum()).row(0)
        rows.append((f"{format_things(rest.height, 'other')}", None, None, *sums))
    totals = told.select(pl.col(keys).sum()).row(0)
    return Table(
        title=f"kernels of {ledger.other} by role, observed, against {ledger.base}",
        columns=columns,
        rows=(*rows, ("total", None, None, *totals)),
        has_total=True,
    )
