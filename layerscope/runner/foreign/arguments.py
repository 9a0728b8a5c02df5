"""The arguments of a call as views of memory that can be copied and filled again.

An argument keeps its strides and its alignment, and arguments that share memory share
it in a copy too: kernels depend on all three. So memory is copied as bytes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import KeyPath, MappingKey, TreeSpec, keystr, tree_unflatten

Given: TypeAlias = Sequence[object] | Mapping[str, object]
"""Arguments as users give them: positional ones, or keyword arguments by name."""

PLAIN: Final = (bool, int, float, complex, str, bytes, torch.dtype, torch.device)
"""Types of values that say all of what they are."""


@dataclass(frozen=True, slots=True)
class View:
    """A tensor among the arguments, as a part of a span of memory."""

    span: int
    offset_bytes: int
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def of(self, memory: Sequence[Tensor]) -> Tensor:
        """The tensor in `memory`, which is uint8 [bytes] by span."""
        span = memory[self.span]
        offset = (span.storage_offset() + self.offset_bytes) // self.dtype.itemsize
        view = torch.empty(0, dtype=self.dtype, device=span.device)
        return view.set_(span.untyped_storage(), offset, self.shape, self.strides)

    def __str__(self) -> str:
        text = f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"
        plain = torch.empty(self.shape, device="meta").stride()
        return text if self.strides == plain else f"{text} strides {list(self.strides)}"


@dataclass(frozen=True, slots=True)
class Arguments:
    """What one call gets."""

    positional: tuple[Any, ...]
    keyword: dict[str, Any]

    tensors: tuple[Tensor, ...]
    """Those among the arguments, nested ones too, in order."""

    memory: tuple[Tensor, ...]
    """uint8 [bytes] by span: what the tensors are views of."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Everything of the arguments but the values of tensors."""

    nesting: TreeSpec
    paths: tuple[KeyPath, ...]
    """Of the leaves."""

    leaves: tuple[object, ...]
    """In order; a `View` stands for each tensor."""

    @property
    def views(self) -> list[View]:
        """The tensors."""
        return [leaf for leaf in self.leaves if isinstance(leaf, View)]

    @property
    def names(self) -> list[str]:
        """Of the tensors, such as ``inputs[1]``."""
        named = zip(self.paths, self.leaves, strict=True)
        return [name_of(path) for path, leaf in named if isinstance(leaf, View)]

    @property
    def described(self) -> tuple[str, ...]:
        """Every leaf in words, such as ``bfloat16 [6, 2048]``."""
        return tuple(map(_described, self.paths, self.leaves))

    def arguments(self, memory: Sequence[Tensor]) -> Arguments:
        """The arguments of a call, with their tensors in `memory`."""
        values = [
            leaf.of(memory) if isinstance(leaf, View) else leaf for leaf in self.leaves
        ]
        given = tree_unflatten(values, self.nesting)
        is_named = isinstance(given, dict)
        return Arguments(
            positional=() if is_named else given,
            keyword=given if is_named else {},
            tensors=tuple(value for value in values if isinstance(value, Tensor)),
            memory=tuple(memory),
        )


def name_of(path: KeyPath) -> str:
    """What messages call the argument at `path`: ``inputs['mask']``, ``inputs[1]``."""
    return f"inputs{keystr(path)}"


def told(leaf: object) -> str:
    """An argument in words, short enough for a line: a value, or of what kind it is."""
    if isinstance(leaf, View):
        return str(leaf)
    is_short = leaf is None or isinstance(leaf, PLAIN)
    return repr(leaf) if is_short else type(leaf).__name__


def _described(path: KeyPath, leaf: object) -> str:
    first, *rest = path
    if isinstance(first, MappingKey):
        return f"{first.key}{keystr(tuple(rest))} {told(leaf)}"
    return told(leaf)
