"""Measures one decoder layer of a language model, region by region.

The names in `__all__` are the public ones. They load when first used, so that
``import layerscope`` is quick and imports neither torch nor polars.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from layerscope.errors import (
        BackendError,
        InputError,
        LayerscopeError,
        MeasurementError,
        RecordError,
    )
    from layerscope.layers.spec import LayerSpec
    from layerscope.regions import Region, region
    from layerscope.run import Run, load
    from layerscope.study import Arm, Study

__version__ = "0.1.0"

__all__ = [
    "Arm",
    "BackendError",
    "InputError",
    "LayerSpec",
    "LayerscopeError",
    "MeasurementError",
    "RecordError",
    "Region",
    "Run",
    "Study",
    "__version__",
    "load",
    "region",
]

_HOMES: Final = {
    "Arm": "layerscope.study",
    "BackendError": "layerscope.errors",
    "InputError": "layerscope.errors",
    "LayerSpec": "layerscope.layers.spec",
    "LayerscopeError": "layerscope.errors",
    "MeasurementError": "layerscope.errors",
    "RecordError": "layerscope.errors",
    "Region": "layerscope.regions",
    "Run": "layerscope.run",
    "Study": "layerscope.study",
    "load": "layerscope.run",
    "region": "layerscope.regions",
}
"""The module of each public name; a test holds it equal to the imports above."""


def __getattr__(name: str) -> object:
    """The public object `name`, imported on first use (PEP 562)."""
    if name not in _HOMES:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
