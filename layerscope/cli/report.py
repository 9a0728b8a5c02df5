"""``layerscope report``: the report of a run as a page for a browser."""

from pathlib import Path
from typing import Annotated, Final

import typer

from layerscope.cli.files import check_output, output_file
from layerscope.cli.interrupts import interruptible
from layerscope.cli.needs import need
from layerscope.units import format_bytes

USUAL: Final = "report.html"
"""The name of the page where none is given."""


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN")],
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="The page; an older one is replaced.", metavar="FILE"
        ),
    ] = Path(USUAL),
) -> None:
    """Write the report of a recorded run as one page of HTML."""
    from layerscope.render.chart_scripts import ChartScripts

    check_output(output, USUAL)
    # Bundling scripts takes longest, so it starts first.
    with interruptible(), ChartScripts() as scripts:
        need("report", "report")
        from layerscope.render.html import render
        from layerscope.run import load

        page = render(load(run), scripts).encode()
        with output_file(output) as file:
            file.write(page)
    typer.echo(f"{output}: {format_bytes(len(page))}")
