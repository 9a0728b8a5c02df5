"""``layerscope doctor``: what can and cannot be measured on this machine, and why."""

import errno
from typing import Annotated

import typer

from layerscope.cli.streams import abandon_stdout
from layerscope.errors import RecordError


def command(
    *,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of text.")
    ] = False,
) -> None:
    """Say what can be measured here, what not, and the fix."""
    from layerscope.doctor import examine
    from layerscope.render.diagnosis import print_diagnosis, to_json

    diagnosis = examine(device)
    try:
        if json:
            typer.echo(to_json(diagnosis), nl=False)
        else:
            print_diagnosis(diagnosis)
    except OSError as error:
        abandon_stdout()
        if error.errno != errno.EPIPE:  # who closes the pipe early has read enough
            msg = f"cannot write the diagnosis: {error.strerror}"
            raise RecordError(msg) from error
    if not diagnosis.is_ready:
        raise typer.Exit(1)
