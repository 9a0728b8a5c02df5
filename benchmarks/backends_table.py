"""Prints the runs under fixtures/backends as Markdown: layers, drafts, and distances.

Usage: ``python -m benchmarks.backends_table FOLDER``. Times are anchors in µs, ± half
of their 95 % intervals; the change is that of `nvidia_mega` against `standard`;
overlap, fusion and residual are what its ledger says of it. The last table has the
bounds of the standard chain in µs, each with how many times it `standard` and
`nvidia_mega` take: ``25.9 (2.18, 1.74)``; dashes where limits were not measured, or not
at the speed of launches that anchors were, by what was noted of it. Runs that tell
switches apart, or have stamps, are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from benchmarks.fixtures_table import change, folder_of_runs, kernels, lines, time, work
from layerscope.analyze.causes import Cause, Ledger
from layerscope.analyze.launch_speeds import are_bounds_of_anchors
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import LayerSpec
from layerscope.report.bounds import bounds_table
from layerscope.report.document import Cell, Interval
from layerscope.report.measures import Measures, measures
from layerscope.run import Run, load
from layerscope.run_header import RunHeader
from layerscope.units import NOTHING, NS_PER_US, format_number

BOUNDS: Final = ("no PDL", "stock PDL", "legal early start", "all early", "one read")


@dataclass(frozen=True)
class Pair:
    """The arms whose change is told."""

    base: str = "standard"
    other: str = "nvidia_mega"


@dataclass(frozen=True)
class Measured:
    """A run of a layer or of a draft."""

    header: RunHeader
    spec: LayerSpec | DraftSpec
    found: Measures

    @property
    def arms(self) -> list[str]:
        """Those that were asked for, measured or not."""
        return [arm.name for arm in self.header.study.arms]

    @property
    def order(self) -> tuple[str, int, str, int]:
        """Model, ranks, weights, and rows or drafted tokens."""
        spec = self.spec
        weights = str(spec.weight_dtype)
        if isinstance(spec, LayerSpec):
            return spec.model.name, spec.tp, weights, spec.rows
        return spec.model, spec.tp, weights, spec.requests * spec.tokens


def measured(runs: Sequence[Run]) -> list[Measured]:
    """Those of layers and of drafts, by what was measured."""
    specs = ((run, run.header.study.spec) for run in runs)
    found = [
        Measured(run.header, spec, measures(run))
        for run, spec in specs
        if isinstance(spec, LayerSpec | DraftSpec)
    ]
    return sorted(found, key=lambda each: each.order)


def causes(ledger: Ledger | None) -> list[str]:
    """What overlap gave, what fusion, and what is left; dashes where it is unknown."""
    if ledger is None or ledger.unknown:
        return [NOTHING, NOTHING, NOTHING]
    values = {line.cause: line.change.value for line in ledger.lines}
    left = ledger.residual
    signed_ns = values.get(Cause.OVERLAP, nan), ledger.fusion, left.value
    overlap, fusion, residual = (
        format_number(ns / NS_PER_US, 1, signed=True) for ns in signed_ns
    )
    half_ns = max(left.high - left.value, left.value - left.low)
    half = format_number(half_ns / NS_PER_US, 1)
    return [overlap, fusion, f"{residual} ± {half}"]


def against(run: Measured, pair: Pair) -> list[str]:
    """The change between `pair` and its parts; dashes where these were not compared."""
    if run.found.base != pair.base:
        return [NOTHING, *causes(None)]
    return [change(run.found, pair.other), *causes(run.found.ledgers.get(pair.other))]


def table(
    heads: Sequence[str], runs: Sequence[Measured], pair: Pair = Pair()
) -> Iterator[str]:
    """The lines of one table; none without a run.

    Args:
        heads: of the columns that say what was measured.
        runs: of layers or of drafts; an arm that one of them lacks has a dash there.
        pair: the arms whose change is told.
    """
    if not runs:
        return
    arms = list(dict.fromkeys(arm for run in runs for arm in run.arms))
    values = [f"{arm}, µs" for arm in arms]
    values += ["change", "overlap, µs", "fusion, µs", "residual, µs", "kernels"]
    rows = (
        [
            *work(run.spec),
            *(time(run.found, arm) for arm in arms),
            *against(run, pair),
            kernels(run.found, arms),
        ]
        for run in runs
    )
    yield from lines(heads, values, rows)


def distances(
    heads: Sequence[str], runs: Sequence[Measured], pair: Pair = Pair()
) -> Iterator[str]:
    """The lines of the table of bounds; none without a run.

    Args:
        heads: of the columns that say what was measured.
        runs: of layers.
        pair: the arms that are held against the bounds.
    """
    if not runs:
        return
    values = [f"{bound}, µs" for bound in BOUNDS]
    rows = ([*work(run.spec), *bounds(run, pair)] for run in runs)
    yield from lines(heads, values, rows)


def bounds(run: Measured, pair: Pair) -> list[str]:
    """Each bound of the standard chain, and the anchors of `pair` over it."""
    anchors = run.found.anchors
    chosen = {arm: anchors[arm] for arm in (pair.base, pair.other) if arm in anchors}
    is_known = are_bounds_of_anchors(run.header.launch_costs)
    of_chain = [each for each in run.header.bounds if is_known and not each.arm]
    cells = {
        name: distance(bound, over)
        for found in bounds_table(replace(run.header, bounds=of_chain), chosen)
        for _, name, bound, _, _, *over in found.rows
    }
    return [cells.get(name, NOTHING) for name in BOUNDS]


def distance(bound: Cell, over: Sequence[Cell]) -> str:
    """A bound, and how many times it arms take: ``25.9 (2.18, 1.74)``."""
    value_ns = bound.value if isinstance(bound, Interval) else nan
    times = (format_number(each, 2) for each in over if isinstance(each, float))
    return f"{format_number(value_ns / NS_PER_US, 1)} ({', '.join(times)})"


def main(folder: Path) -> None:
    """Print the tables of all runs in `folder` that compare backends."""
    runs = [load(path.parent) for path in sorted(folder.glob("*/run.json"))]
    whole = [
        run
        for run in runs
        if not (run.header.study.switch_arms or run.header.study.stamp_arms)
    ]
    layers = measured(whole)
    drafts = measured([run.draft for run in whole if run.draft is not None])
    tables = (
        table(["layer", "ranks", "rows", "weights"], layers),
        table(["draft", "ranks", "tokens", "weights"], drafts),
        distances(["bounds", "ranks", "rows", "weights"], layers),
    )
    print("\n\n".join(filter(None, map("\n".join, tables))))


if __name__ == "__main__":
    main(folder_of_runs(__doc__))
