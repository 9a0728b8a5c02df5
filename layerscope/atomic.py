"""Files that are either the old ones or the new ones, whatever happens meanwhile."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def replace_files(folder: Path, contents: Mapping[str, bytes]) -> None:
    """Write every file whole under a temporary name, then move all into place.

    Args:
        folder: an existing folder.
        contents: file name to its bytes; moved in this order.

    Raises:
        OSError: a write failed. No file in `folder` has changed, unless it was one of
            the moves itself that failed, and no temporary is left.
    """
    temporaries = {folder / f".{name}.tmp": name for name in contents}
    try:
        for temporary, name in temporaries.items():
            with temporary.open("wb") as file:
                file.write(contents[name])
                file.flush()
                os.fsync(file.fileno())
        for temporary, name in temporaries.items():
            temporary.replace(folder / name)
    finally:
        for temporary in temporaries:
            temporary.unlink(missing_ok=True)
    _sync_folder(folder)


@contextmanager
def new_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write to, which is at `path` once the block has ended, and not before.

    Args:
        path: in an existing folder; a file that is there is replaced.

    Raises:
        OSError: a write failed. Whatever the block raises, what was at `path` has not
            changed then, and no temporary is left.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """Make the moves themselves durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
