"""``layerscope selftest``: whether causes that are planted here are found."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from layerscope.cli.interrupts import interruptible
from layerscope.cli.needs import need_torch
from layerscope.cli.options import Json, takes
from layerscope.cli.streams import tell
from layerscope.errors import InputError


@dataclass(frozen=True, slots=True, kw_only=True)
class SelftestOptions:
    """``layerscope selftest`` as typed."""

    only: Annotated[
        str | None,
        typer.Option(help="Some of the cases.", metavar="NAME,..", show_default="all"),
    ] = None
    list: Annotated[
        bool, typer.Option("--list", help="List the cases, and measure nothing.")
    ] = False
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="Folder for the runs, one a case.",
            metavar="FOLDER",
            show_default="layerscope-runs/TIME-selftest",
        ),
    ] = None
    json: Json = False


@takes(SelftestOptions)
def command(options: SelftestOptions, arguments: list[str]) -> None:
    """Plant causes in small kernels, and check that ledgers find them."""
    names = _names(options.only)
    if options.list:
        _print_cases(as_json=options.json)
        return
    with interruptible():
        try:
            passed = _run(names, options, ["layerscope", *arguments])
        except KeyboardInterrupt:
            tell("interrupted")
            raise
    if not passed:
        raise typer.Exit(1)


def _names(only: str | None) -> tuple[str, ...]:
    """The studies to make, in their usual order."""
    from layerscope.selftest.plan import NAMES

    if only is None:
        return NAMES
    asked = [name.strip() for name in only.split(",")]
    for name in asked:
        if name not in NAMES:
            msg = f"--only: there is no case {name!r}; there are {', '.join(NAMES)}"
            raise InputError(msg)
    return tuple(name for name in NAMES if name in asked)


def _print_cases(*, as_json: bool) -> None:
    from layerscope.cli.output import print_report
    from layerscope.selftest.reporting import cases_report

    print_report(cases_report(), as_json=as_json)


def _run(
    names: tuple[str, ...], options: SelftestOptions, command_line: list[str]
) -> bool:
    """Measure and print; whether every case passed."""
    need_torch("selftest")

    from layerscope.cli.output import print_report
    from layerscope.graphs.device import facts
    from layerscope.render.progress import progress_on
    from layerscope.run import new_run_folder
    from layerscope.runner import RunnerOptions
    from layerscope.selftest.machine import usable_device
    from layerscope.selftest.reporting import outcomes_report

    device = usable_device()

    from layerscope.selftest.studies import run_selftest  # only with the cuda extra

    output = options.output or new_run_folder("selftest")
    with progress_on(sys.stderr, f"planting {', '.join(names)}") as progress:
        asked = RunnerOptions(output=output, command=command_line, progress=progress)
        outcomes = tuple(run_selftest(names, device, asked))
    print_report(outcomes_report(outcomes, facts(device)), as_json=options.json)
    tell(f"saved; see one of the runs: layerscope show {output}/{names[0]}")
    return all(outcome.judged.passed for outcome in outcomes)
