"""Standard output and error of the program, whatever they are connected to."""

import codecs
import io
import os
import sys
from contextlib import suppress
from typing import Final

_HANDLER: Final = "layerscope.plain"
_PLAIN: Final = {"−": "-", "–": "-", "─": "-", "×": "x", "µ": "u", "…": "~", "°": " "}
"""As wide as what they stand for, so that tables keep their columns."""


def forgive_encoding() -> None:
    """Print what a stream's encoding lacks in plain signs; else as question marks."""
    codecs.register_error(_HANDLER, _plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


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
