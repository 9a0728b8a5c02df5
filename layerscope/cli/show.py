"""``layerscope show``: the report of a run on disk."""

from pathlib import Path
from typing import Annotated

import typer


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN")],
    *,
    json: Annotated[
        bool, typer.Option("--json", help="Print JSON instead of tables.")
    ] = False,
) -> None:
    """Print where the time of a recorded layer goes."""
    from layerscope.cli.output import print_run
    from layerscope.run import load

    print_run(load(run), as_json=json)
