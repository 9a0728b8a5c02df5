"""``layerscope analyze``: the layers in a trace of a whole model."""

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerscope.cli.interrupts import interruptible
from layerscope.cli.options import Json, takes
from layerscope.errors import InputError

if TYPE_CHECKING:  # polars, which --help does without
    from layerscope.analyze.swept_trace import SweptTrace
    from layerscope.ingest.read import Reading
    from layerscope.report import Report
    from layerscope.report.trace import TraceView


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzeOptions:
    """``layerscope analyze`` as typed."""

    traces: Annotated[
        list[Path],
        typer.Argument(
            help="A trace of Kineto, Nsight Systems, rocprofv3, rocpd or Perfetto; "
            "or several, or a folder of them, one of each rank.",
            metavar="TRACE...",
        ),
    ]
    layer: Annotated[
        int | None,
        typer.Option(
            help="List the kernels of one layer, from 0.",
            metavar="N",
            show_default=False,
        ),
    ] = None
    step_kind: Annotated[
        str | None,
        typer.Option(
            help="Only steps of this kind: decode, prefill, mixed or unknown.",
            metavar="KIND",
            show_default="all",
        ),
    ] = None
    device: Annotated[
        int | None,
        typer.Option(
            help="Which GPU, as the trace numbers them.",
            metavar="N",
            show_default="the busiest",
        ),
    ] = None
    rules: Annotated[
        Path | None,
        typer.Option(
            help="A TOML table of names of kernels and their regions, which comes "
            "before that of layerscope.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None
    no_cache: Annotated[
        bool,
        typer.Option("--no-cache", help="Neither use nor keep what was read before."),
    ] = False
    save: Annotated[
        Path | None,
        typer.Option(
            "--save",
            help="Also make a run of the steps, for show, compare, export and report.",
            metavar="RUN",
            show_default=False,
        ),
    ] = None
    json: Json = False


@takes(AnalyzeOptions)
def command(options: AnalyzeOptions, arguments: list[str]) -> None:
    """Find the layers in a trace of a model, and what it waits for."""
    from layerscope.cli.output import print_report
    from layerscope.report.trace import TraceView

    view = TraceView(
        device=options.device, step_kind=options.step_kind, layer=options.layer
    )
    with interruptible():
        reading = _read(options.traces, use_cache=not options.no_cache)
        swept = _swept(reading, options.rules)
        report = _report(swept, view, reading)
        if options.save is not None:
            _save(swept, options.save, arguments)
    print_report(report, as_json=options.json)


def _read(paths: list[Path], *, use_cache: bool) -> "Reading":
    from layerscope.ingest.read import ReadOptions, read_traces
    from layerscope.render.progress import progress_on

    with progress_on(sys.stderr) as progress:
        options = ReadOptions(cache=use_cache, progress=progress)
        return read_traces(paths, options=options)


def _swept(reading: "Reading", rules: Path | None) -> "list[SweptTrace]":
    from layerscope.analyze.kernel_rules import load_rules
    from layerscope.analyze.placing import place_trace
    from layerscope.analyze.swept_trace import sweep_trace

    known = load_rules(rules)
    swept = []
    for trace in reading.traces:
        placed = place_trace(trace, known)
        swept.append(
            sweep_trace(trace, placed.kernels, placed.without_layers, placed.cut)
        )
    return swept


def _report(
    swept: "list[SweptTrace]", view: "TraceView", reading: "Reading"
) -> "Report":
    from layerscope.report.trace import trace_report
    from layerscope.report.trace_ranks import ranks_report

    if len(swept) > 1 and view.layer is not None:
        msg = f"--layer is for one trace, and {len(swept)} are given; give one of them"
        raise InputError(msg)
    several = len(swept) > 1
    report = ranks_report(swept, view) if several else trace_report(swept[0], view)
    skipped = (f"{each.name} {each.reason}" for each in reading.skipped)
    return replace(report, warnings=(*report.warnings, *skipped))


def _save(swept: "list[SweptTrace]", path: Path, arguments: list[str]) -> None:
    from layerscope.cli.streams import tell
    from layerscope.ingest.saving import save

    save(swept, path, ["layerscope", *arguments])
    tell(f"saved; see it again: layerscope show {path}")
