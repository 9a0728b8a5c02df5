"""``layerscope report``: the report of a run as a page for a browser."""

from pathlib import Path
from typing import Annotated

import typer

from layerscope.cli.needs import need
from layerscope.errors import InputError
from layerscope.units import format_bytes


def command(
    run: Annotated[Path, typer.Argument(help="Folder of a run.", metavar="RUN")],
    *,
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", help="The page; an older one is replaced.", metavar="FILE"
        ),
    ] = Path("report.html"),
) -> None:
    """Write the report of a recorded run as one page of HTML."""
    from layerscope.render.chart_scripts import ChartScripts

    _check(output)
    with ChartScripts() as scripts:  # takes longest, so it starts first
        need("report", "report")
        from layerscope.render.html import render
        from layerscope.run import load

        page = render(load(run), scripts).encode()
    _write(output, page)
    typer.echo(f"{output}: {format_bytes(len(page))}")


def _check(output: Path) -> None:
    """Refuse at once what can be no page.

    Raises:
        InputError: it is a folder, or there is no folder to hold it.
    """
    if output.is_dir():
        msg = f"{output} is a folder; name a file in it: -o {output / 'report.html'}"
        raise InputError(msg)
    if not output.parent.is_dir():
        msg = f"{output.parent} is not a folder; choose another --output"
        raise InputError(msg)


def _write(output: Path, page: bytes) -> None:
    """Write the page whole or not at all.

    Raises:
        InputError: it cannot be written.
    """
    from layerscope.atomic import replace_files

    try:
        replace_files(output.parent, {output.name: page})
    except OSError as error:
        msg = f"cannot write {output}: {error.strerror}; choose another --output"
        raise InputError(msg) from error
