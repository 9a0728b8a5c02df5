"""Files that are either the old ones or the new ones, whatever happens meanwhile."""

import os
from collections.abc import Mapping
from pathlib import Path


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


def _sync_folder(folder: Path) -> None:
    """Make the moves themselves durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
