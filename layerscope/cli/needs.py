"""What a plain install lacks, and which command needs it."""

from importlib import import_module
from typing import Final

from layerscope.errors import MeasurementError

_MODULES: Final = {
    "perfetto": ("perfetto",),
    "profile": ("torch", "safetensors"),
    "report": ("altair", "jinja2", "vl_convert"),
}


def need_torch(command: str) -> None:
    """Go on only where the extra ``profile`` is installed.

    Raises:
        MeasurementError: it is not; says how to install it.
    """
    need("profile", command)


def need(extra: str, command: str) -> None:
    """Go on only where an extra of this package is installed.

    Args:
        extra: its name.
        command: what needs it.

    Raises:
        MeasurementError: it is not; says how to install it.
    """
    try:
        for name in _MODULES[extra]:
            import_module(name)
    except ModuleNotFoundError as error:
        msg = f"{command} needs {error.name}; pip install 'layerscope[{extra}]'"
        raise MeasurementError(msg) from error
