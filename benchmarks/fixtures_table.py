"""Prints recorded runs as two Markdown tables: of the layers, and of their drafts.

Usage: ``python benchmarks/fixtures_table.py FOLDER``. Times are anchors in µs, ± half
of their 95 % intervals; changes are against the first arm of a run. A model is named
where its rows begin.
"""

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import LayerSpec
from layerscope.report.measures import Measures, measures
from layerscope.run import Run, load
from layerscope.units import NOTHING, NS_PER_US, format_number, format_percent


def time(measured: Measures, arm: str) -> str:
    """The anchor of an arm: ``296.4 ± 0.4``."""
    anchor = measured.anchors.get(arm)
    if anchor is None or not anchor.samples:
        return NOTHING
    half_ns = (anchor.high - anchor.low) / 2
    value, half = (format_number(ns / NS_PER_US, 1) for ns in (anchor.value, half_ns))
    return f"{value} ± {half}"


def change(measured: Measures, arm: str) -> str:
    """The change to an arm and what it means: ``−52.5 %, faster``."""
    comparison = measured.comparisons.get(arm)
    if comparison is None or not comparison.difference.samples:
        return NOTHING
    return f"{format_percent(comparison.relative, signed=True)}, {comparison.verdict}"


def work(spec: LayerSpec | DraftSpec) -> list[str]:
    """Model, ranks, rows or drafted tokens, and weights."""
    ranks = f"1 of {spec.tp}" if spec.shard_shaped else str(spec.tp)
    if isinstance(spec, LayerSpec):
        return [spec.model.name, ranks, str(spec.rows), str(spec.weight_dtype)]
    tokens = f"{spec.requests} × {spec.tokens}"
    return [spec.model, ranks, tokens, str(spec.weight_dtype)]


def row(run: Run, spec: LayerSpec | DraftSpec, arms: Sequence[str]) -> list[str]:
    """The cells of one run: its work, the first arm, the others with their changes."""
    measured = measures(run)
    base, *others = arms
    cells = [*work(spec), time(measured, base)]
    for arm in others:
        cells += [time(measured, arm), change(measured, arm)]
    return [*cells, kernels(measured, arms)]


def kernels(measured: Measures, arms: Sequence[str]) -> str:
    """Kernels a pass, in the order of the arms."""
    counts = (measured.kernels.get(arm) for arm in arms)
    return ", ".join(NOTHING if count is None else f"{count:g}" for count in counts)


def table(heads: list[str], runs: Sequence[Run], arms: Sequence[str]) -> Iterator[str]:
    """The lines of one table.

    Args:
        heads: of the columns that say what was measured.
        runs: of layers or of drafts, those of a model together.
        arms: the first is the one that others are compared with.
    """
    base, *others = arms
    values = [f"{base}, µs"]
    for arm in others:
        values += [f"{arm}, µs", "change"]
    values.append("kernels")
    specs = ((run, run.header.study.spec) for run in runs)
    rows = (
        row(run, spec, arms)
        for run, spec in specs
        if isinstance(spec, LayerSpec | DraftSpec)
    )
    yield from lines(heads, values, rows)


def lines(
    heads: Sequence[str], values: Sequence[str], rows: Iterable[Sequence[str]]
) -> Iterator[str]:
    """A Markdown table.

    Args:
        heads: titles of the columns that say what was measured.
        values: titles of the others, which are on the right.
        rows: cells, the model first, which is named where its rows begin.
    """
    yield f"| {' | '.join([*heads, *values])} |"
    yield "|" + "---|" * len(heads) + "--:|" * len(values)
    before = ""
    for model, *cells in rows:
        yield f"| {' | '.join(['' if model == before else model, *cells])} |"
        before = model


def main(folder: Path) -> None:
    """Print the tables of all runs of layers in `folder`."""
    runs = [load(path.parent) for path in sorted(folder.glob("*/run.json"))]
    layers = [run for run in runs if isinstance(run.header.study.spec, LayerSpec)]
    drafts = [run.draft for run in layers if run.draft is not None]
    arms = [arm.name for arm in layers[0].header.study.arms]
    for line in table(["layer", "ranks", "rows", "weights"], layers, arms):
        print(line)
    print()
    for line in table(["draft", "ranks", "tokens", "weights"], drafts, arms):
        print(line)


def folder_of_runs(what: str | None) -> Path:
    """The one argument on the command line.

    Args:
        what: the command does.

    Raises:
        SystemExit: it is no folder that holds runs; or help was asked for.
    """
    parser = ArgumentParser(
        description=what, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="holds runs")
    folder: Path = parser.parse_args().folder
    if not any(folder.glob("*/run.json")):
        parser.error(f"{folder} holds no runs")
    return folder


if __name__ == "__main__":
    main(folder_of_runs(__doc__))
