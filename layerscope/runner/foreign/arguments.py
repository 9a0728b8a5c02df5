"""The arguments of a call as views of memory that can be copied and filled again.

An argument keeps its strides and its alignment, and arguments that share memory share
it in a copy too: kernels depend on all three. So memory is copied as bytes.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor
from torch.utils._pytree import KeyPath, MappingKey, TreeSpec, keystr, tree_unflatten

Given: TypeAlias = Sequence[object] | Mapping[str, object]
"""Arguments as users give them: positional ones, or keyword arguments by name."""

PLAIN: Final = (bool, int, float, complex, str, bytes, torch.dtype, torch.device)
"""Types of values that say all of what they are."""

_CHUNK_WORDS: Final = 2**20
"""Words that `fingerprint` widens at once."""


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

    leaves: tuple[object, ...]
    """All that is nested in them, in order."""

    tensors: tuple[Tensor, ...]
    """Those among the leaves, in order."""

    versions: tuple[int, ...]
    """Of the tensors, before any call: torch counts what it writes."""

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

    @property
    def is_nested(self) -> bool:
        """Whether there are containers, empty ones too, but the outermost."""
        return self.nesting.num_nodes - self.nesting.num_leaves > 1

    def arguments(self, memory: Sequence[Tensor]) -> Arguments:
        """The arguments of a call, with their tensors in `memory`."""
        leaves = tuple(
            leaf.of(memory) if isinstance(leaf, View) else leaf for leaf in self.leaves
        )
        tensors = tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))
        positional, keyword = self._given(leaves)
        return Arguments(
            positional=positional,
            keyword=keyword,
            leaves=leaves,
            tensors=tensors,
            versions=tuple(map(_version, tensors)),
            memory=tuple(memory),
        )

    def nested_anew(self, arguments: Arguments) -> Arguments:
        """`arguments` in containers as they were given, whatever calls put in those.

        The outermost one is new at every call anyway.
        """
        if not self.is_nested:
            return arguments
        positional, keyword = self._given(arguments.leaves)
        return replace(arguments, positional=positional, keyword=keyword)

    def touched(self, arguments: Arguments) -> set[int]:
        """Spans that torch has written; kernels of other makers are not counted."""
        counted = zip(self.views, arguments.tensors, arguments.versions, strict=True)
        return {view.span for view, tensor, was in counted if _version(tensor) != was}

    def names_in(self, spans: Container[int]) -> list[str]:
        """Names of the tensors in `spans`."""
        named = zip(self.names, self.views, strict=True)
        return [name for name, view in named if view.span in spans]

    def _given(
        self, leaves: Sequence[object]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        given = tree_unflatten(leaves, self.nesting)
        return ((), given) if isinstance(given, dict) else (given, {})


def name_of(path: KeyPath) -> str:
    """What messages call the argument at `path`: ``inputs['mask']``, ``inputs[1]``."""
    return f"inputs{keystr(path)}"


def told(leaf: object) -> str:
    """An argument in words, short enough for a line: a value, or of what kind it is."""
    if isinstance(leaf, View):
        return str(leaf)
    is_short = leaf is None or isinstance(leaf, PLAIN)
    return repr(leaf) if is_short else type(leaf).__name__


def fingerprint(memory: Tensor) -> Tensor:
    """int64 [chunks]: sums that two different contents share once in 2**31 times.

    Multilinear hashing with fixed random keys (Lemire and Kaser, 2014,
    "Strongly universal string hashing is fast"): nothing as large need be kept.

    Args:
        memory: uint8 [bytes], whole multiples of four.
    """
    words = memory.view(torch.int32)
    keys = torch.randint(
        -(2**63),
        2**63 - 1,
        (min(len(words), _CHUNK_WORDS),),
        generator=torch.Generator(memory.device).manual_seed(0),
        device=memory.device,
    )
    chunks = words.split(_CHUNK_WORDS)
    return torch.stack([(chunk * keys[: len(chunk)]).sum() for chunk in chunks])


def _version(tensor: Tensor) -> int:
    """How often torch has written a tensor or its views; -1 where it does not count."""
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001


def _described(path: KeyPath, leaf: object) -> str:
    first, *rest = path
    if isinstance(first, MappingKey):
        return f"{first.key}{keystr(tuple(rest))} {told(leaf)}"
    return told(leaf)
