"""``layerscope``: finds the command, and turns its end into an exit code."""

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from layerscope import __version__
from layerscope.cli import (
    analyze,
    backends,
    compare,
    doctor,
    export,
    gate,
    limits,
    profile,
    report,
    selftest,
    show,
)
from layerscope.cli.streams import forgive_encoding
from layerscope.errors import EXIT_INTERRUPTED, EXIT_OK, LayerscopeError

app = typer.Typer(
    name="layerscope",
    help="Measure one decoder layer of a language model, region by region.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("analyze")(analyze.command)
app.command("backends")(backends.command)
app.command("compare")(compare.command)
app.command("doctor")(doctor.command)
app.command("export")(export.command)
app.command("gate")(gate.command)
app.command("limits")(limits.command)
app.command("profile")(profile.command)
app.command("report")(report.command)
app.command("selftest")(selftest.command)
app.command("show")(show.command)


def _print_version(*, wanted: bool) -> None:
    if wanted:
        typer.echo(f"layerscope {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    *,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    pass


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    Errors of layerscope's own print one line on stderr; any other exception is a bug
    and passes through with its traceback.

    Args:
        argv: the arguments after the program's name; None takes those of the process.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        app(args=arguments, prog_name="layerscope", obj=arguments)
    except SystemExit as end:  # how the parser ends: done, --help, usage, Ctrl-C
        return end.code if isinstance(end.code, int) else EXIT_OK
    except LayerscopeError as error:
        typer.echo(f"error: {error}", err=True)
        return error.exit_code
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return EXIT_OK


def entry_point() -> None:
    """Run as the program ``layerscope``."""
    forgive_encoding()
    sys.exit(main())
