"""Prints recorded runs as a Markdown table: each layer, then its draft.

Usage: ``python benchmarks/fixtures_table.py FOLDER``. The first arm of a run is what
the others are compared with; times are anchors in µs with their 95 % intervals.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from layerscope.layers.spec import LayerSpec
from layerscope.report.measures import Measures, measures
from layerscope.run import Run, load
from layerscope.units import format_number, format_percent


def time(measured: Measures, arm: str) -> str:
    """Anchor of an arm, its kernels, and its change with what that means."""
    if arm not in measured.anchors or not measured.anchors[arm].samples:
        return "–"
    anchor = measured.anchors[arm]
    low, high = (format_number(ns / 1e3, 1) for ns in (anchor.low, anchor.high))
    text = f"{format_number(anchor.value / 1e3, 1)} ({low} … {high})"
    kernels = measured.kernels.get(arm)
    if kernels is not None:
        text += f", {format_number(kernels, 0)} kernels"
    comparison = measured.comparisons.get(arm)
    if comparison is not None:
        change = format_percent(comparison.relative, signed=True)
        text += f", {change}: {comparison.verdict}"
    return text


def cells(run: Run | None, arms: list[str]) -> Iterator[str]:
    """What every arm took in a run."""
    measured = None if run is None else measures(run)
    for arm in arms:
        yield "–" if measured is None else time(measured, arm)


def main(folder: Path) -> None:
    """Print the table of all runs of layers in `folder`."""
    runs = [load(path.parent) for path in sorted(folder.glob("*/run.json"))]
    layers = [run for run in runs if isinstance(run.header.study.spec, LayerSpec)]
    arms = [arm.name for arm in layers[0].header.study.arms]
    columns = ["layer", "ranks", "rows", "weights", *arms]
    columns += [f"draft: {arm}" for arm in arms]
    print(f"| {' | '.join(columns)} |")
    print("|" + "---|" * len(columns))
    for run in layers:
        spec = run.header.study.spec
        if not isinstance(spec, LayerSpec):
            continue
        ranks = f"1 of {spec.tp}" if spec.shard_shaped else str(spec.tp)
        work = [spec.model.name, ranks, str(spec.rows), str(spec.weight_dtype)]
        row = [*work, *cells(run, arms), *cells(run.draft, arms)]
        print(f"| {' | '.join(row)} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
