"""What a plain install lacks, and which command needs it."""

from importlib import import_module
from typing import Final

from layerscope.errors import MeasurementError

_MODULES: Final = ("torch", "safetensors")


def need_torch(command: str) -> None:
    """Go on only where the extra ``profile`` is installed.

    Raises:
        MeasurementError: it is not; says how to install it.
    """
    try:
        for name in _MODULES:
            import_module(name)
    except ModuleNotFoundError as error:
        msg = f"{command} needs {error.name}; pip install 'layerscope[profile]'"
        raise MeasurementError(msg) from error
