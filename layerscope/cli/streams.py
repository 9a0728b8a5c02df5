"""Standard output and error of the program, whatever they are connected to."""

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import Final

import typer

_HANDLER: Final = "layerscope.plain"
_PLAIN: Final = {"−": "-", "–": "-", "─": "-", "×": "x", "µ": "u", "…": "~", "°": " "}
"""As wide as what they stand for, so that tables keep their columns."""


def forgive_encoding() -> None:
    """Print what a stream's encoding lacks in plain signs; else as question marks."""
    codecs.register_error(_HANDLER, _plain)
    if sys.stderr is None:  # closed by whoever started the program
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def tell(line: str) -> None:
    """Write `line` to standard error; a result is not lost where that is gone."""
    with suppress(OSError):
        typer.echo(line, err=True)


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(_PLAIN.get(sign, "?") for sign in lacking), error.end


def abandon_stdout() -> None:
    """Let what could not be written go: Python would try again as it ends."""
    with suppress(OSError):  # not connected to a file
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
