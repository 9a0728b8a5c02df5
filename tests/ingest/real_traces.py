"""Where the real traces of other tools are, which the project does not carry."""

import os
from pathlib import Path
from typing import Final

import pytest

VARIABLE: Final = "LAYERSCOPE_TRACES"
"""Names a folder of trace files, see the data guide in CONTRIBUTING.md."""


def real_trace(name: str) -> Path:
    """The file or folder `name`, such as ``TraceLens/x.json.gz``; skips without it."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder of traces")
    path = Path(folder) / name
    if not path.exists():
        pytest.skip(f"there is no {name} in the folder of {VARIABLE}")
    return path
