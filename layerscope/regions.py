"""The regions of a layer, and the markers that open and close them.

Code under measurement writes ``with region("moe"): ...`` and, for what one kernel does
within it, ``with role("gate_up"): ...``. A marker costs two lookups when nobody
observes. Whoever wants to know (graph capture, a profiler, NVTX) installs an `Observer`
for the duration of a block with `observing`.

``torch.compile`` traces a marker to nothing, whether anybody observes or not: what is
measured must be what runs unmeasured. So compiled code is marked from outside.
"""

import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol


class Region(StrEnum):
    """A part of a decoder layer, in the order of execution, or the draft after it.

    Foreign code may use names of its own beside these.
    """

    ATTENTION = "attention"
    O_PROJ_ALL_REDUCE = "o_proj_all_reduce"
    MOE = "moe"
    MLP = "mlp"
    MHC = "mhc"
    DRAFT = "draft"
    OTHER = "other"


_UNASSIGNED: Final = (
    "unassigned"  # `schema.UNASSIGNED`, which stands beside this module
)


def in_order(regions: Iterable[str]) -> list[str]:
    """`regions` once each: as a layer runs them, then foreign ones, then ``other``.

    What a trace leaves unassigned comes last.
    """
    return sorted(set(regions), key=_place)


def _place(region: str) -> tuple[int, int, str]:
    known = [each.value for each in Region if each is not Region.OTHER]
    place = known.index(region) if region in known else len(known)
    last = [Region.OTHER.value, _UNASSIGNED]
    return last.index(region) + 1 if region in last else 0, place, region


@dataclass(frozen=True, slots=True)
class Mark:
    """One opened scope: a pass of the layer, a region within it, or a role in that."""

    kind: str
    """``"pass"``, ``"region"`` or ``"role"``."""

    name: str
    """The pass index in decimal, or the name of the region or role."""

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
_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_ROLE: Final = re.compile(rf"{_NAME.pattern}(\+{_NAME.pattern})*")


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


def is_region_name(name: str) -> bool:
    """Whether `region` takes `name`: a letter, then letters, digits and ``_``."""
    return _NAME.fullmatch(name) is not None


def is_observed() -> bool:
    """Whether anybody is told of marks here; where not, they need not be made."""
    return bool(_observers.get())


@contextmanager
def _observed(mark: Mark, observers: tuple[Observer, ...]) -> Iterator[None]:
    for observer in observers:
        observer.opened(mark)
    try:
        yield
    finally:
        for observer in reversed(observers):
            observer.closed(mark)


def _is_traced() -> bool:
    """Whether ``torch.compile`` reads this code just now, instead of running it."""
    compiler = sys.modules.get("torch.compiler")  # torch is never imported for a marker
    return compiler is not None and compiler.is_dynamo_compiling()


def _scope(kind: str, name: str | int) -> AbstractContextManager[None]:
    if _is_traced():
        return _UNOBSERVED
    observers = _observers.get()
    return _observed(_mark(kind, name), observers) if observers else _UNOBSERVED


def _mark(kind: str, name: str | int) -> Mark:
    allowed = _ROLE if kind == "role" else _NAME
    if isinstance(name, str) and not allowed.fullmatch(name):
        several = ", or several such joined by +" if kind == "role" else ""
        word = "a letter, then letters, digits and _"
        msg = f"{name!r} is no name of a {kind}: {word}{several}"
        raise ValueError(msg)
    return Mark(kind, str(name))


def region(name: Region | str) -> AbstractContextManager[None]:
    """Mark a block as belonging to the region `name`; the innermost region counts.

    Args:
        name: a `Region`, or a name of your own: a letter, then letters, digits, ``_``.

    Raises:
        ValueError: `name` is not such a name; told where anybody observes.
    """
    return _scope("region", name)


def role(name: str) -> AbstractContextManager[None]:
    """Name what the kernels of a block do, such as ``gate_up``; the innermost counts.

    Kernels of two arms are compared by their roles. One that does what several do
    elsewhere joins their names: ``gate_up+activation``. Roles are kept with every
    kernel: column ``role`` of ``run.kernels``.

    Raises:
        ValueError: `name` is not a letter followed by letters, digits and ``_``, nor
            several such names joined by ``+``; told where anybody observes.
    """
    return _scope("role", name)


def layer_pass(index: int) -> AbstractContextManager[None]:
    """Mark a block as pass `index` (from 0) of a replay."""
    return _scope("pass", index)
