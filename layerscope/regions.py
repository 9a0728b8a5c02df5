"""The regions of a layer, and the marker that opens and closes them.

Code under measurement writes ``with region(Region.MOE): ...``. The marker costs one
lookup when nobody observes. Whoever wants to know (graph capture, a profiler, NVTX)
installs an `Observer` for the duration of a block with `observing`.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol


class Region(StrEnum):
    """A part of a decoder layer, in the order of execution."""

    ATTENTION = "attention"
    O_PROJ_ALL_REDUCE = "o_proj_all_reduce"
    MOE = "moe"
    MLP = "mlp"
    MHC = "mhc"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Mark:
    """One opened scope: a pass of the layer, or a region within it."""

    kind: str
    """``"pass"`` or ``"region"``."""

    name: str
    """The pass index in decimal, or the region's name."""

    @property
    def label(self) -> str:
        """The text that profilers show, such as ``layerscope:region:moe``."""
        return f"{LABEL_PREFIX}{self.kind}:{self.name}"

    @classmethod
    def from_label(cls, label: str) -> "Mark | None":
        """The mark that `label` was made from, or None for anyone else's text."""
        if not label.startswith(LABEL_PREFIX):
            return None
        kind, _, name = label.removeprefix(LABEL_PREFIX).partition(":")
        return cls(kind, name)


LABEL_PREFIX: Final = "layerscope:"


class Observer(Protocol):
    """Is told of every mark that opens and closes while it is installed."""

    def opened(self, mark: Mark) -> None:
        """`mark` begins now."""

    def closed(self, mark: Mark) -> None:
        """`mark` ends now; marks close in reverse order of opening."""


_observers: ContextVar[tuple[Observer, ...]] = ContextVar(
    "layerscope_observers", default=()
)
_UNOBSERVED: Final = nullcontext()


@contextmanager
def observing(*observers: Observer) -> Iterator[None]:
    """Install `observers` in this thread (context) for the duration of the block."""
    token = _observers.set((*_observers.get(), *observers))
    try:
        yield
    finally:
        _observers.reset(token)


@contextmanager
def _observed(mark: Mark, observers: tuple[Observer, ...]) -> Iterator[None]:
    for observer in observers:
        observer.opened(mark)
    try:
        yield
    finally:
        for observer in reversed(observers):
            observer.closed(mark)


def _scope(kind: str, name: str) -> AbstractContextManager[None]:
    observers = _observers.get()
    return _observed(Mark(kind, name), observers) if observers else _UNOBSERVED


def region(name: Region | str) -> AbstractContextManager[None]:
    """Mark a block as belonging to the region `name`.

    Raises:
        ValueError: `name` is not a `Region`.
    """
    return _scope("region", Region(name).value)


def layer_pass(index: int) -> AbstractContextManager[None]:
    """Mark a block as pass `index` (from 0) of a replay."""
    return _scope("pass", str(index))
