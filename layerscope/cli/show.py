"""``layerscope show``: the report of a run on disk."""

from pathlib import Path
from typing import Annotated

import typer

from layerscope.cli.options import Json
from layerscope.errors import InputError


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN")],
    *,
    timeline: Annotated[
        bool,
        typer.Option(
            "--timeline", help="Draw the median pass of each arm instead, as bars."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Print the report of a recorded run."""
    from layerscope.cli.output import print_passes, print_run
    from layerscope.run import load

    if timeline and json:
        msg = "--timeline draws for people and --json is for programs; choose one"
        raise InputError(msg)
    if timeline:
        print_passes(load(run))
    else:
        print_run(load(run), as_json=json)
