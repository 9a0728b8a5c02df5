"""What every command prints of a run: the report, as tables or as JSON."""

import errno

import typer

from layerscope.cli.streams import abandon_stdout
from layerscope.errors import RecordError
from layerscope.render import console, json
from layerscope.report import build_report
from layerscope.run import Run


def print_run(run: Run, *, as_json: bool) -> None:
    """Write the report of `run` to standard output.

    Whoever closes the pipe early has read enough, which is no error.

    Raises:
        RecordError: standard output cannot be written.
    """
    report = build_report(run)
    try:
        if as_json:
            typer.echo(json.render(report, run), nl=False)
        else:
            console.print_report(report)
    except OSError as error:
        abandon_stdout()
        if error.errno != errno.EPIPE:
            msg = f"cannot write the report: {error.strerror}"
            raise RecordError(msg) from error
