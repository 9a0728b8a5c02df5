"""What every command prints: a report, as tables or as JSON."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from layerscope.cli.streams import abandon_stdout
from layerscope.errors import InputError, RecordError
from layerscope.render import console, json, timeline
from layerscope.report import Report, build_report
from layerscope.report.median_passes import drawn_passes
from layerscope.report.work import title
from layerscope.run import Run


def print_run(run: Run, *, as_json: bool) -> None:
    """Write the report of `run` to standard output.

    Raises:
        RecordError: standard output cannot be written.
    """
    print_report(build_report(run), run, as_json=as_json)


def print_report(report: Report, run: Run | None = None, *, as_json: bool) -> None:
    """Write `report` to standard output.

    Whoever closes the pipe early has read enough, which is no error.

    Args:
        report: what is printed.
        run: what it is about, whose header JSON has too.
        as_json: JSON instead of tables.

    Raises:
        RecordError: standard output cannot be written.
    """
    with _to_stdout():
        if as_json:
            typer.echo(json.render(report, run), nl=False)
        else:
            console.print_report(report)


def print_passes(run: Run) -> None:
    """Draw the median pass of every arm of `run`, and of its draft's.

    Raises:
        InputError: no pass was recorded.
        RecordError: standard output cannot be written.
    """
    runs = [run] if run.draft is None else [run, run.draft]
    drawn = [(each, passes) for each in runs if (passes := drawn_passes(each))]
    if not drawn:
        msg = f"{run.path} has no recorded pass to draw; layerscope show tells the rest"
        raise InputError(msg)
    with _to_stdout():
        for place, (each, passes) in enumerate(drawn):
            if place:
                typer.echo()
            timeline.print_timeline(passes, title(each.header.study.spec))


def print_headlines(report: Report) -> None:
    """Write only what was found, a line each however long.

    Raises:
        RecordError: standard output cannot be written.
    """
    with _to_stdout():
        for fact in report.headlines:
            typer.echo(f"{fact.label} {fact.text}")


@contextmanager
def _to_stdout() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        abandon_stdout()
        if error.errno != errno.EPIPE:
            msg = f"cannot write the report: {error.strerror}"
            raise RecordError(msg) from error
