"""Why one arm's time differs from another's: the change, split by cause.

With serial twins, what overlap gives is measured by itself: a twin runs the same
kernels one after the other, so the rest of the change is in its records, where nothing
overlaps and a duration is work::

    anchor(B) - anchor(A) = [S(A) - anchor(A)] - [S(B) - anchor(B)]     overlap
                          + S(B) - S(A)          the lines of records, and the residual

where S is the anchor of a twin. Without twins, the ledger is of the profiled passes of
the captured graphs themselves: it closes, but what a kernel saves by running behind
another cannot be told there from what it saves by being faster.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import msgspec
import numpy as np
import polars as pl

from layerscope.analyze.attribution import (
    RECORD_CAUSES,
    Records,
    changes,
    hidden_ns,
    records_of,
)
from layerscope.analyze.bootstrap import (
    Estimate,
    estimate,
    independent_difference,
    middle,
)
from layerscope.analyze.causes import Cause, Ledger, Line
from layerscope.analyze.clocks import clock_doubt
from layerscope.analyze.statistics import ANCHOR, anchor_ns, paired
from layerscope.analyze.swept import SweptRun, sweep_run
from layerscope.analyze.twins import Graphs, benefits, serial_twin
from layerscope.experiment import CAPTURED
from layerscope.run import Run
from layerscope.run_header import KernelCost
from layerscope.units import format_count, format_ns

FEWEST_ALIKE: Final = 0.5
"""Part of an arm's passes that must have the same kernels before they are matched."""

JITTER: Final = 0.005
"""Part of a pass that may be hidden where nothing overlaps: on some H200s, records of
kernels that follow each other on one stream overlap by 64 ns now and then."""

_MOST_HIDDEN: Final = 0.02
"""Part of a pass that may overlap in a serial twin before it is none."""


def ledger(run: Run, base: str, other: str) -> Ledger:
    """The change from arm `base` to arm `other`, cause by cause.

    It is by experiments where both arms have a serial twin that was timed and recorded,
    or are serial as they are; else it is observed. Dropped replays are no zeros: only
    rounds that were recorded of both arms count. Nothing is attributed, and `unknown`
    says why, where the clock may be the cause, where records cannot be compared, and
    where a twin is not serial.

    Args:
        run: whole or partial, of any format version.
        base: name of the arm compared with.
        other: name of the arm compared.
    """
    return ledger_of(sweep_run(run), base, other)


def ledger_of(swept: SweptRun, base: str, other: str) -> Ledger:
    """As `ledger`, for who has swept the run already.

    Args:
        swept: the run.
        base: name of the arm compared with.
        other: name of the arm compared.
    """
    twins = [serial_twin(swept.run, arm) for arm in (base, other)]
    reasons = tuple(dict.fromkeys(twin.reason for twin in twins if twin.reason))
    if reasons:
        return _observed(swept, (base, other), reasons)
    first, second = (twin.experiment for twin in twins)
    return _by_experiments(swept, (base, first), (other, second))


@dataclass(frozen=True, slots=True)
class _Split:
    """The change in what records show, and its parts."""

    total: Estimate
    base_ns: float
    lines: tuple[Line, ...]
    regions: dict[str, dict[Cause, Estimate]]


def _by_experiments(swept: SweptRun, base: Graphs, other: Graphs) -> Ledger:
    sides = [records_of(swept.graph(*graph), graph[0]) for graph in (base, other)]
    gains = benefits(swept.times, base, other)
    costs = swept.header.observer_costs
    split = _split(*sides, costs=costs)
    lines = (Line(Cause.OVERLAP, gains.overlap), *split.lines)
    change = paired(swept.times, base[0], other[0])
    doubts = [
        _clock_doubt(swept.run, (base, other)),
        "" if gains.overlap.samples else "no round was timed with both twins",
        *_doubts(sides, split),
        *(_twin_overlaps(side) for side in sides if _hidden_part(side) > _MOST_HIDDEN),
    ]
    notes = [
        *([] if costs else ["what the profiler costs is not known, and in the gaps"]),
        *(_twin_overlaps(side) for side in sides if _hidden_part(side) > JITTER),
        *_left_out(sides),
    ]
    if base[1] == other[1] == CAPTURED:
        notes.insert(
            0, "the graphs of both arms are already serial, so overlap is zero"
        )
    found = Ledger(
        base=base[0],
        other=other[0],
        basis="experiments",
        change=change,
        base_ns=gains.corners.base.value,
        lines=lines,
        residual=_residual(
            change, lines, independent_difference(gains.serial_change, split.total)
        ),
        regions=split.regions,
        corners=gains.corners,
        hidden=_hidden(swept, (base[0], other[0])),
        notes=tuple(notes),
    )
    return _unless(doubts, found)


def _observed(swept: SweptRun, arms: tuple[str, str], reasons: Sequence[str]) -> Ledger:
    sides = [records_of(swept.graph(arm), arm) for arm in arms]
    split = _split(*sides)
    doubts = [
        _clock_doubt(swept.run, [(arm, CAPTURED) for arm in arms]),
        *_doubts(sides, split),
    ]
    overlapping = [side.arm for side in sides if _hidden_part(side) > JITTER]
    notes = [f"from records alone: {'; '.join(reasons)}"]
    if overlapping:
        notes.append(
            "overlap against faster kernels is not separable: kernels run beside each "
            f"other in {' and '.join(overlapping)}"
        )
    none = Estimate(0.0, 0.0, 0.0, split.total.samples, split.total.effective)
    found = Ledger(
        base=arms[0],
        other=arms[1],
        basis="observed",
        change=split.total,
        base_ns=split.base_ns,
        lines=split.lines,
        residual=_residual(split.total, split.lines, none),
        regions=split.regions,
        hidden=_hidden(swept, arms),
        notes=(*notes, *_left_out(sides)),
    )
    if not split.total.samples:
        change = paired(swept.times, *arms)
        base_ns = anchor_ns(swept.times, arms[0])
        found = replace(found, change=change, base_ns=base_ns)
    return _unless(doubts, found)


def _split(
    base: Records, other: Records, *, costs: Sequence[KernelCost] = ()
) -> _Split:
    change = pl.col("other_ns") - pl.col("base_ns")
    cells = changes(base, other, costs).with_columns(change_ns=change)
    dearer = changes(base, other, [_dearer(cost) for cost in costs]) if costs else cells
    cells = cells.with_columns(doubt_ns=change - dearer.select(change).to_series())
    regions = {
        region: {cause: _sum(part, cause) for cause in RECORD_CAUSES}
        for (region,), part in cells.partition_by(
            "region", as_dict=True, maintain_order=True
        ).items()
    }
    return _Split(
        total=_sum(cells),
        base_ns=middle(_rounds(cells), "base_ns"),
        lines=tuple(Line(cause, _sum(cells, cause)) for cause in RECORD_CAUSES),
        regions=regions,
    )


def _dearer(cost: KernelCost) -> KernelCost:
    """`cost` with half of its interval on top."""
    half_ns = (cost.high_ns - cost.low_ns) / 2
    return msgspec.structs.replace(cost, added_ns=cost.added_ns + half_ns)


def _rounds(cells: pl.DataFrame) -> pl.DataFrame:
    """What the cells of every round add up to."""
    return cells.group_by("capture", "round", maintain_order=True).agg(
        pl.col("base_ns", "change_ns", "doubt_ns").sum()
    )


def _sum(cells: pl.DataFrame, cause: Cause | None = None) -> Estimate:
    """The estimate of the change that cells add up to; of one cause, or of all.

    It is as uncertain, besides, as what the records of the kernels that one arm has
    more of cost. All have that from one calibration, so it adds up.
    """
    chosen = cells if cause is None else cells.filter(pl.col("cause") == cause.value)
    rounds = _rounds(chosen)
    found = estimate(rounds, "change_ns")
    if not found.samples:
        return found
    doubt_ns = abs(float(np.mean(rounds["doubt_ns"].to_numpy())))
    doubt = Estimate(0.0, -doubt_ns, doubt_ns, found.samples, found.effective)
    return independent_difference(found, doubt)


def _residual(change: Estimate, lines: Iterable[Line], spread: Estimate) -> Estimate:
    """What the lines leave of the change; as uncertain as `spread`, which estimates it.

    The interval is moved to the value, which differs from that of `spread` by what
    medians of sums differ from sums of medians, and reaches back over what it moved.
    """
    value = change.value - sum(line.change.value for line in lines)
    moved = value - spread.value
    return Estimate(
        value,
        spread.low + min(moved, 0.0),
        spread.high + max(moved, 0.0),
        spread.samples,
        spread.effective,
    )


def _unless(doubts: Iterable[str], found: Ledger) -> Ledger:
    """`found`, or with the first doubt the change alone."""
    doubt = next(filter(None, doubts), "")
    if not doubt:
        return found
    return replace(found, lines=(), regions={}, residual=found.change, unknown=doubt)


def _clock_doubt(run: Run, graphs: Iterable[Graphs]) -> str:
    compared = [
        (pl.col("arm") == arm) & pl.col("experiment").is_in([CAPTURED, twin])
        for arm, twin in graphs
    ]
    return clock_doubt(
        run.samples.filter(pl.col("phase") == ANCHOR, pl.any_horizontal(compared))
    )


def _doubts(sides: Iterable[Records], split: _Split) -> Iterator[str]:
    """Why the records of two arms cannot be compared."""
    for side in sides:
        typical = side.typical
        if not typical.passes:
            yield f"no pass of {side.arm} was recorded"
        elif typical.passes_alike < FEWEST_ALIKE * typical.passes:
            alike, passes = map(format_count, (typical.passes_alike, typical.passes))
            yield (
                f"the kernels of {side.arm} vary: at most {alike} of {passes} passes "
                "have the same"
            )
    if not split.total.samples:
        yield "no round was recorded of both arms"


def _hidden_part(side: Records) -> float:
    return side.hidden_ns / side.pass_ns


def _twin_overlaps(side: Records) -> str:
    hidden = format_ns(side.hidden_ns)
    return f"the serial twin of {side.arm} overlaps: {hidden} of a pass are hidden"


def _hidden(swept: SweptRun, arms: Iterable[str]) -> dict[str, float]:
    """By arm, of those that were recorded as captured."""
    found = {arm: hidden_ns(swept.graph(arm)) for arm in arms}
    return {arm: each for arm, each in found.items() if not math.isnan(each)}


def _left_out(sides: Iterable[Records]) -> Iterator[str]:
    for side in sides:
        passes, alike = side.typical.passes, side.typical.passes_alike
        if alike < passes:
            yield (
                f"{format_count(passes - alike)} of {format_count(passes)} passes of "
                f"{side.arm} have other kernels than most, and are left out"
            )
