"""The file that a command was asked to write: there whole, or not at all."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from layerscope.atomic import new_file
from layerscope.errors import InputError, RecordError


def check_output(output: Path, usual: str) -> None:
    """Refuse, before any work, what no file can be written to.

    A file that is there is none of that: it will be replaced.

    Args:
        output: what ``--output`` says.
        usual: the name of a file, to advise where it is a folder.

    Raises:
        InputError: it is a folder, a device or the like, or in no folder.
    """
    if output.is_dir():
        msg = f"{output} is a folder; name a file in it: -o {output / usual}"
        raise InputError(msg)
    if output.exists() and not output.is_file():
        msg = f"{output} is not a regular file; choose another --output"
        raise InputError(msg)
    if not output.parent.is_dir():
        msg = f"there is no folder {output.parent}; choose another --output"
        raise InputError(msg)


@contextmanager
def output_file(output: Path) -> Iterator[BinaryIO]:
    """A file to write to, which is at `output` once the block has ended.

    Whatever ends the block before, what was at `output` stays, and nothing else is
    left. Within it, an `OSError` must be one of writing.

    Raises:
        RecordError: the disk is full.
        InputError: it cannot be written for another reason.
    """
    try:
        with new_file(output) as file:
            yield file
    except OSError as error:
        if error.errno == errno.ENOSPC:
            msg = f"disk full while writing {output}; free some space and try again"
            raise RecordError(msg) from error
        msg = f"cannot write {output}: {error.strerror}; choose another --output"
        raise InputError(msg) from error
