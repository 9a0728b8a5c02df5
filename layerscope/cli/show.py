"""``layerscope show``: the report of a run on disk."""

from pathlib import Path
from typing import Annotated

import typer

from layerscope.cli.options import Json


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN")],
    *,
    json: Json = False,
) -> None:
    """Print the report of a recorded run."""
    from layerscope.cli.output import print_run
    from layerscope.run import load

    print_run(load(run), as_json=json)
