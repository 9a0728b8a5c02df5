"""``layerscope gate``: fails where a run is slower than another."""

import math
from pathlib import Path
from typing import Annotated

import typer

from layerscope.errors import EXIT_REGRESSION, EXIT_UNKNOWN, InputError


def command(
    run: Annotated[
        Path, typer.Argument(help="Folder of the run that is judged.", metavar="RUN")
    ],
    *,
    against: Annotated[
        Path, typer.Option(help="Folder of the run before.", metavar="BASE")
    ],
    max_regression: Annotated[
        str, typer.Option(help="By how much an arm may be slower.", metavar="PERCENT")
    ] = "2%",
    arm: Annotated[
        list[str] | None,
        typer.Option(
            help="An arm that is judged; may be given again.",
            metavar="ARM",
            show_default="all of BASE",
        ),
    ] = None,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of lines.")
    ] = False,
) -> None:
    """Fail where a run is slower than the one before, beyond noise.

    The exit code is then 3; it is 4 where that cannot be told, and else 0.
    """
    allowed = _fraction(max_regression)

    from layerscope.analyze.across_runs import Outcome
    from layerscope.cli.output import print_headlines, print_report
    from layerscope.cli.streams import tell
    from layerscope.report.gate import gate_runs
    from layerscope.run import load

    judged = gate_runs(load(run), load(against), allowed, tuple(arm or ()))
    if json:
        print_report(judged.report, as_json=True)
    else:
        print_headlines(judged.report)
        for line in (*judged.report.notes, *judged.report.warnings):
            tell(line)
    if judged.outcome is Outcome.FAIL:
        raise typer.Exit(EXIT_REGRESSION)
    if judged.outcome is Outcome.UNKNOWN:
        raise typer.Exit(EXIT_UNKNOWN)


def _fraction(text: str) -> float:
    """The fraction of ``2%``."""
    number, percent, rest = text.partition("%")
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not percent or rest.strip() or not 0 <= value < math.inf:
        msg = f"--max-regression {text!r} is no percentage; write 2%"
        raise InputError(msg)
    return value / 100
