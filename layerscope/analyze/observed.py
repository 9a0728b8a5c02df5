"""What the kernels of two arms differ by, where only records are there: no rounds.

A trace of another tool is one observation. Nothing in it was repeated on purpose, so no
difference has an interval, nor a verdict. What can be told is where the time of a pass
goes in either, and how kernels that stand for each other differ: in the gaps they end,
and in the time by which they move the frontier.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from layerscope.analyze.attribution import RECORD_CAUSES, hidden_ns
from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.causes import Cause, Ledger, Line
from layerscope.analyze.facing import (
    SIDES,
    FacingPasses,
    Passes,
    facing_passes,
    passes_of,
)
from layerscope.analyze.ledger import FEWEST_ALIKE, JITTER, ledger
from layerscope.analyze.matching import match
from layerscope.analyze.typical import typical_pass
from layerscope.passes import GRAPH_PASS_KEYS
from layerscope.run import Run
from layerscope.schema import TEXT, Schema
from layerscope.trace_spec import TraceSpec
from layerscope.units import format_count

_CELLS: Final[Schema] = {
    "region": TEXT,
    "cause": TEXT,
    "base_ns": pl.Float64(),
    "other_ns": pl.Float64(),
}
_ROLES: Final[Schema] = {
    "region": TEXT,
    "kernel": TEXT,
    "is_role": pl.Boolean(),
    **{
        f"{side}_{name}": pl.Float64()
        for side in ("base", "other")
        for name in ("kernels", "gap_ns", "exclusive_ns")
    },
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Observed:
    """The observed difference of two arms; nothing here has an interval."""

    base: Passes
    other: Passes

    ledger: Ledger
    """Its estimates have intervals without ends, and its residual is zero."""

    roles: pl.DataFrame
    """Of a mean compared pass, what kernels of one role take on either side, or, of
    those without, of one name: region, kernel (the role or name), is_role (Boolean),
    and base_kernels, base_gap_ns, base_exclusive_ns and the same of other (Float64,
    null where a side has none), largest change first."""

    compared: tuple[int, int]
    """Passes of either side that were compared."""


def ledger_between(run: Run, base: str, other: str) -> Ledger:
    """The change from arm `base` to arm `other` of any run, measured or of a trace.

    Args:
        run: what holds both.
        base: name of the arm compared with.
        other: name of the arm compared.
    """
    if not isinstance(run.header.study.spec, TraceSpec):
        return ledger(run, base, other)
    sides = (passes_of(run, arm) for arm in (base, other))
    return observe(*sides).ledger


def observe(base: Passes, other: Passes) -> Observed:
    """The observed ledger from `base` to `other`, in ns of a mean pass.

    Where both have the same passes by number, as layers of one model have, each pass
    faces that of its number, and of each number the passes with the most common list of
    kernels are compared. Else those are compared that have the most common list of all.
    Where gaps of a side cannot be told from its kernels, all of the change is `MIXED`.

    Args:
        base: what is compared with.
        other: what is compared.
    """
    groups = list(facing_passes(base.rows, other.rows))
    cells = _cells(groups)
    compared = (
        sum(group.base.select(GRAPH_PASS_KEYS).n_unique() for group in groups),
        sum(group.other.select(GRAPH_PASS_KEYS).n_unique() for group in groups),
    )
    return Observed(
        base=base,
        other=other,
        ledger=_ledger(base, other, cells, compared),
        roles=_roles(groups),
        compared=compared,
    )


def _cells(groups: list[FacingPasses]) -> pl.DataFrame:
    """What either side spends in a mean pass, by region and cause."""
    parts = [pl.DataFrame(schema=_CELLS)]
    for group in groups:
        typical = [typical_pass(rows) for rows in (group.base, group.other)]
        matching = match(*typical)
        for side, each, labels in zip(
            SIDES, typical, (matching.base, matching.other), strict=True
        ):
            rows = each.alike.join(labels, on=["region", "ordinal"])
            part = group.weight / each.passes_alike
            for cause, column in (("gap_cause", "gap_ns"), ("cause", "exclusive_ns")):
                spent = rows.group_by("region", cause=cause).agg(
                    (pl.col(column).sum() * part).alias(f"{side}_ns")
                )
                parts.append(
                    spent.with_columns(
                        pl.lit(0.0).alias(f"{name}_ns")
                        for name in SIDES
                        if name != side
                    ).select(*_CELLS)
                )
    return (
        pl.concat(parts)
        .group_by("region", "cause")
        .agg(pl.col("base_ns", "other_ns").sum())
        .sort("region", "cause")
    )


def _roles(groups: list[FacingPasses]) -> pl.DataFrame:
    frames = [
        _by_role(groups, side).rename(
            {name: f"{side}_{name}" for name in ("kernels", "gap_ns", "exclusive_ns")}
        )
        for side in SIDES
    ]
    key = ["region", "kernel", "is_role"]
    change = pl.sum_horizontal(
        pl.col(f"other_{name}").fill_null(0.0) - pl.col(f"base_{name}").fill_null(0.0)
        for name in ("gap_ns", "exclusive_ns")
    )
    joined = frames[0].join(frames[1], on=key, how="full", coalesce=True)
    return joined.select(*_ROLES).sort(
        change.abs(), *key, descending=[True, False, False, False]
    )


def _by_role(groups: list[FacingPasses], side: str) -> pl.DataFrame:
    """A mean pass of one side by role, or else name."""
    spent = []
    for group in groups:
        rows = group.base if side == "base" else group.other
        part = group.weight / rows.select(GRAPH_PASS_KEYS).n_unique()
        spent.append(
            rows.select(
                "region",
                kernel=pl.coalesce("role", "name"),
                is_role=pl.col("role").is_not_null(),
                kernels=pl.lit(part),
                gap_ns=pl.col("gap_ns") * part,
                exclusive_ns=pl.col("exclusive_ns") * part,
            )
        )
    names = ("kernels", "gap_ns", "exclusive_ns")
    none = pl.DataFrame(
        schema={"region": TEXT, "kernel": TEXT, "is_role": pl.Boolean()}
        | dict.fromkeys(names, pl.Float64())
    )
    return (
        pl.concat([none, *spent])
        .group_by("region", "kernel", "is_role")
        .agg(pl.col(names).sum())
    )


def _ledger(
    base: Passes, other: Passes, cells: pl.DataFrame, compared: tuple[int, int]
) -> Ledger:
    doubt = next(_doubts(base, other, compared), "")
    causes: tuple[Cause, ...] = RECORD_CAUSES
    if base.why_no_gaps or other.why_no_gaps:
        causes = (Cause.MIXED,)
        cells = cells.with_columns(cause=pl.lit(Cause.MIXED.value))
    sums = cells.group_by("cause").agg(
        change=pl.col("other_ns").sum() - pl.col("base_ns").sum()
    )
    by_cause: dict[str, float] = dict(sums.iter_rows())
    lines = tuple(
        Line(cause, _bare(by_cause.get(cause.value, 0.0))) for cause in causes
    )
    total_ns = sum(line.change.value for line in lines)
    if doubt:
        total_ns = other.pass_ns - base.pass_ns
    return Ledger(
        base=base.name,
        other=other.name,
        basis="observed",
        change=_bare(total_ns),
        base_ns=base.pass_ns if doubt else float(cells["base_ns"].sum()),
        lines=() if doubt else lines,
        residual=_bare(total_ns if doubt else 0.0),
        regions={} if doubt else _regions(cells, causes),
        hidden={
            side.name: each
            for side in (base, other)
            if not math.isnan(each := hidden_ns(side.rows))
        },
        unknown=doubt,
        notes=tuple(_notes(base, other, compared)),
    )


def _regions(
    cells: pl.DataFrame, causes: tuple[Cause, ...]
) -> dict[str, dict[Cause, Estimate]]:
    found: dict[str, dict[Cause, Estimate]] = {}
    sums = cells.group_by("region", "cause", maintain_order=True).agg(
        pl.col("base_ns", "other_ns").sum()
    )
    for region, cause, base_ns, other_ns in sums.iter_rows():
        none = dict.fromkeys(causes, _bare(0.0))
        found.setdefault(region, none)[Cause(cause)] = _bare(other_ns - base_ns)
    return found


def _bare(value_ns: float) -> Estimate:
    """An estimate of one observation: nothing says how well it is known."""
    return Estimate(value_ns, -math.inf, math.inf, 1, 1.0)


def _doubts(base: Passes, other: Passes, compared: tuple[int, int]) -> Iterator[str]:
    yield from (
        f"no pass of {side.name} was recorded"
        for side in (base, other)
        if not side.count
    )
    for side, alike in zip((base, other), compared, strict=True):
        if alike < FEWEST_ALIKE * side.count:
            told, passes = map(format_count, (alike, side.count))
            yield (
                f"the kernels of {side.name} vary: {told} of {passes} passes could be "
                "compared"
            )


def _notes(base: Passes, other: Passes, compared: tuple[int, int]) -> Iterator[str]:
    mixed = [
        f"{side.why_no_gaps} in {side.name}"
        for side in (base, other)
        if side.why_no_gaps
    ]
    if mixed:
        yield f"gaps against kernels are not separable: {'; '.join(mixed)}"
    overlapping = [
        side.name
        for side in (base, other)
        if side.count and hidden_ns(side.rows) > JITTER * side.pass_ns
    ]
    if overlapping:
        yield (
            "overlap against faster kernels is not separable: kernels run beside each "
            f"other in {' and '.join(overlapping)}"
        )
    for side, alike in zip((base, other), compared, strict=True):
        if alike < side.count:
            left, passes = map(format_count, (side.count - alike, side.count))
            yield (
                f"{left} of {passes} passes of {side.name} have other kernels "
                "than most of their number, and are left out"
            )
