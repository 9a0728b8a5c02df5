"""Measures one decoder layer of a language model, region by region.

The names in `__all__` are the public ones. They load when first used, so that
``import layerscope`` is quick and imports neither torch nor polars.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from layerscope.errors import (
        BackendError,
        DeviceLostError,
        InputError,
        LayerscopeError,
        MeasurementError,
        RecordError,
    )
    from layerscope.layers.spec import LayerSpec
    from layerscope.notebook import Comparison, Run, Timeline, load, load_trace
    from layerscope.notebook.profiling import profile
    from layerscope.regions import Region, region, role
    from layerscope.runner.foreign import CallableOptions
    from layerscope.study import Arm, Study

__version__ = "0.1.0"

__all__ = [
    "Arm",
    "BackendError",
    "CallableOptions",
    "Comparison",
    "DeviceLostError",
    "InputError",
    "LayerSpec",
    "LayerscopeError",
    "MeasurementError",
    "RecordError",
    "Region",
    "Run",
    "Study",
    "Timeline",
    "__version__",
    "load",
    "load_trace",
    "profile",
    "region",
    "role",
]

_HOMES: Final = {
    "Arm": "layerscope.study",
    "BackendError": "layerscope.errors",
    "CallableOptions": "layerscope.runner.foreign",
    "Comparison": "layerscope.notebook",
    "DeviceLostError": "layerscope.errors",
    "InputError": "layerscope.errors",
    "LayerSpec": "layerscope.layers.spec",
    "LayerscopeError": "layerscope.errors",
    "MeasurementError": "layerscope.errors",
    "RecordError": "layerscope.errors",
    "Region": "layerscope.regions",
    "Run": "layerscope.notebook",
    "Study": "layerscope.study",
    "Timeline": "layerscope.notebook",
    "load": "layerscope.notebook",
    "load_trace": "layerscope.notebook",
    "profile": "layerscope.notebook.profiling",
    "region": "layerscope.regions",
    "role": "layerscope.regions",
}
"""The module of each public name; a test holds it equal to the imports above."""

_EXTRA: Final = ("torch", "safetensors")
"""Packages that measuring needs and a plain install lacks."""


def __getattr__(name: str) -> object:
    """The public object `name`, imported on first use (PEP 562).

    Raises:
        AttributeError: there is no such name.
        MeasurementError: it measures, and the extra ``profile`` is not installed.
    """
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    try:
        home = import_module(_HOMES[name])
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        from layerscope.errors import MeasurementError  # noqa: PLC0415 (as all here)

        msg = f"{name} needs {error.name}; pip install 'layerscope[profile]'"
        raise MeasurementError(msg) from error
    value: object = getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
