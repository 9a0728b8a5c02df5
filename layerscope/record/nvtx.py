"""NVTX ranges around arms, passes and regions, for whoever profiles layerscope itself.

Ranges are host time: under a graph they enclose the capture of a region, not its
execution. They are never on in timed replays.
"""

from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from types import ModuleType

from layerscope.regions import Mark


def _nvtx() -> ModuleType | None:
    try:
        return import_module("nvtx")
    except ImportError:
        return None


class NvtxObserver:
    """Pushes a range for every mark that opens; does nothing without ``nvtx``."""

    def __init__(self) -> None:
        """Load ``nvtx`` if it is installed."""
        self._nvtx = _nvtx()

    def opened(self, mark: Mark) -> None:
        """Push the mark's label, such as ``layerscope:region:moe``."""
        if self._nvtx is not None:
            self._nvtx.push_range(mark.label, domain="layerscope")

    def closed(self, mark: Mark) -> None:  # noqa: ARG002 (ranges are a stack)
        """Pop the range that was pushed last."""
        if self._nvtx is not None:
            self._nvtx.pop_range(domain="layerscope")


def arm_range(arm: str) -> AbstractContextManager[object]:
    """A range around the profiled replays of `arm`."""
    nvtx = _nvtx()
    if nvtx is None:
        return nullcontext()
    return nvtx.annotate(f"layerscope:arm:{arm}", domain="layerscope")  # type: ignore[no-any-return]
