"""``layerscope compare``: two arms of a run, two runs, or traces of other tools."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from layerscope.cli.interrupts import interruptible
from layerscope.cli.options import Json
from layerscope.errors import InputError

if TYPE_CHECKING:  # polars, which --help does without
    from layerscope.run import Run


def command(
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder of a run, or a trace of another tool.", metavar="RUN"
        ),
    ],
    other: Annotated[
        Path | None,
        typer.Argument(help="A run or trace to compare with it.", metavar="OTHER"),
    ] = None,
    *,
    arms: Annotated[
        str | None,
        typer.Option(
            help="Two arms of RUN; or one of RUN and one of OTHER.",
            metavar="A,B",
            show_default="the two that RUN has; of two runs, all of equal names",
        ),
    ] = None,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway", help="Compare runs of different work or machines, and say so."
        ),
    ] = False,
    rules: Annotated[
        Path | None,
        typer.Option(
            help="A TOML table of names of kernels and their regions, for traces.",
            metavar="FILE",
            show_default=False,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Say why one arm is faster, or how runs or traces differ."""
    from layerscope.cli.output import print_report
    from layerscope.report.across_runs import compare_runs
    from layerscope.report.comparison import compare_arms

    pair = None if arms is None else _pair(arms)
    with interruptible():
        base = _loaded(run, rules)
        compared = None if other is None else _loaded(other, rules)
    if compared is not None:
        report = compare_runs(base, compared, pair, anyway=anyway)
    elif anyway:
        msg = "--anyway is for two runs, and only one is given"
        raise InputError(msg)
    else:
        report = compare_arms(base, pair or _both(base))
    print_report(report, as_json=json)


def _loaded(path: Path, rules: Path | None) -> "Run":
    """The run in a folder, or what a trace is as one."""
    from layerscope.run import holds_no_trace, load

    if holds_no_trace(path):
        return load(path)
    from layerscope.ingest.read import ReadOptions
    from layerscope.ingest.traced_runs import read_as_run
    from layerscope.render.progress import progress_on

    with progress_on(sys.stderr) as progress:
        return read_as_run(path, ReadOptions(progress=progress), rules)


def _pair(arms: str) -> tuple[str, str]:
    """The two names in ``--arms``."""
    names = [name.strip() for name in arms.split(",")]
    if len(names) != 2 or not all(names):  # noqa: PLR2004 (a pair)
        msg = f"--arms {arms!r} does not name two arms; write A,B"
        raise InputError(msg)
    return names[0], names[1]


def _both(run: "Run") -> tuple[str, str]:
    """The two arms of a run that has no more."""
    names = [arm.name for arm in run.header.study.arms]
    if len(names) != 2:  # noqa: PLR2004 (a pair)
        msg = f"{run.path} has the arms {', '.join(names)}; pick two with --arms A,B"
        raise InputError(msg)
    return names[0], names[1]
