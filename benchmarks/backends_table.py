"""Prints the runs under fixtures/backends as two Markdown tables: layers, and drafts.

Usage: ``python -m benchmarks.backends_table FOLDER``. Times are anchors in µs, ± half
of their 95 % intervals; the change is that of the last arm against the first, overlap
and fusion are what its ledger says of it. Runs that tell switches apart are left out.
"""

import sys
from collections.abc import Iterator, Sequence
from math import nan
from pathlib import Path

from benchmarks.fixtures_table import change, kernels, lines, time, work
from layerscope.analyze.causes import Cause, Ledger
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import LayerSpec
from layerscope.report.measures import measures
from layerscope.run import Run, load
from layerscope.units import NOTHING, NS_PER_US, format_number


def causes(ledger: Ledger | None) -> list[str]:
    """What overlap gave, and what fusion: ``−5.3``; dashes where that is not known."""
    if ledger is None or ledger.unknown:
        return [NOTHING, NOTHING]
    values = {line.cause: line.change.value for line in ledger.lines}
    both_ns = values.get(Cause.OVERLAP, nan), ledger.fusion
    return [format_number(ns / NS_PER_US, 1, signed=True) for ns in both_ns]


def row(run: Run, spec: LayerSpec | DraftSpec, arms: Sequence[str]) -> list[str]:
    """The cells of one run."""
    measured = measures(run)
    last = arms[-1]
    return [
        *work(spec),
        *(time(measured, arm) for arm in arms),
        change(measured, last),
        *causes(measured.ledgers.get(last)),
        kernels(measured, arms),
    ]


def table(heads: Sequence[str], runs: Sequence[Run]) -> Iterator[str]:
    """The lines of one table; none without a run.

    Args:
        heads: of the columns that say what was measured.
        runs: of layers or of drafts, all with the arms of the first.
    """
    if not runs:
        return
    arms = [arm.name for arm in runs[0].header.study.arms]
    values = [f"{arm}, µs" for arm in arms]
    values += ["change", "overlap, µs", "fusion, µs", "kernels"]
    specs = ((run, run.header.study.spec) for run in runs)
    rows = (
        row(run, spec, arms)
        for run, spec in specs
        if isinstance(spec, LayerSpec | DraftSpec)
    )
    yield from lines(heads, values, rows)


def main(folder: Path) -> None:
    """Print the tables of all runs in `folder` that compare backends."""
    runs = [load(path.parent) for path in sorted(folder.glob("*/run.json"))]
    layers = [run for run in runs if not run.header.study.switch_arms]
    drafts = [run.draft for run in layers if run.draft is not None]
    for line in table(["layer", "ranks", "rows", "weights"], layers):
        print(line)
    print()
    for line in table(["draft", "ranks", "tokens", "weights"], drafts):
        print(line)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
