"""Arguments as users give them, copied: what they are, and the bytes they lie in."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_flatten_with_path

from layerscope.errors import InputError
from layerscope.runner.foreign.arguments import Layout, View, name_of

_ALIGNMENT_BYTES: Final = 16
"""Kernels load as much at once, where an address is a multiple of it."""

_PLAIN_TENSORS: Final = (Tensor, nn.Parameter)


def read(given: object) -> tuple[Layout, tuple[Tensor, ...]]:
    """The layout of the arguments `given`, and uint8 [bytes] of each of its spans.

    What is copied is what is there now: a function of a step may use its tensors again.

    Raises:
        InputError: they are no arguments, on several devices, or cannot be copied.
    """
    found, nesting = tree_flatten_with_path(_arguments(given))
    tensors = {
        index: _plain(name_of(path), leaf)
        for index, (path, leaf) in enumerate(found)
        if isinstance(leaf, Tensor)
    }
    devices = sorted({str(tensor.device) for tensor in tensors.values()})
    if len(devices) > 1:
        msg = f"inputs are on several devices: {', '.join(devices)}; move them to one"
        raise InputError(msg)
    views, row = _spans(tensors)
    leaves = tuple(views.get(index, leaf) for index, (_, leaf) in enumerate(found))
    return Layout(nesting, tuple(path for path, _ in found), leaves), row


def _arguments(given: object) -> dict[str, object] | tuple[object, ...]:
    match given:
        case Mapping() if all(isinstance(name, str) for name in given):
            return dict(given)
        case Sequence() if not isinstance(given, str | bytes):
            return tuple(given)
    msg = (
        f"inputs is of type {type(given).__name__}; give a sequence of arguments, a "
        "mapping of keyword arguments, or a function of a step that makes either"
    )
    raise InputError(msg)


def _plain(name: str, tensor: Tensor) -> Tensor:
    is_plain = (
        type(tensor) in _PLAIN_TENSORS
        and tensor.layout is torch.strided
        and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    )
    if not is_plain:
        msg = (
            f"{name} is no plain strided tensor, so it cannot be copied as it is; "
            "let the callable hold it (functools.partial)"
        )
        raise InputError(msg)
    return tensor.detach()


def _spans(tensors: dict[int, Tensor]) -> tuple[dict[int, View], tuple[Tensor, ...]]:
    """Views of the tensors, and a copy of every span of memory that they lie in."""
    by_storage: dict[int, dict[int, Tensor]] = defaultdict(dict)
    for index, tensor in tensors.items():
        by_storage[tensor.untyped_storage().data_ptr()][index] = tensor
    views: dict[int, View] = {}
    row: list[Tensor] = []
    for group in by_storage.values():
        for span in _overlapping(group):
            for index in span.tensors:
                views[index] = _view(group[index], len(row), span.start)
            row.append(_copy(group[span.tensors[0]], span.start, span.end))
    return views, tuple(row)


@dataclass(slots=True)
class _Span:
    """Bytes of a storage that tensors which overlap lie in."""

    start: int
    end: int
    tensors: list[int] = field(default_factory=list)


def _overlapping(tensors: dict[int, Tensor]) -> list[_Span]:
    """The spans of tensors of one storage."""
    spans: list[_Span] = []
    extents = [(*_extent(tensor), index) for index, tensor in tensors.items()]
    for start, end, index in sorted(extents):
        if not spans or start >= spans[-1].end:
            spans.append(_Span(start, end))
        spans[-1].end = max(spans[-1].end, end)
        spans[-1].tensors.append(index)
    return spans


def _extent(tensor: Tensor) -> tuple[int, int]:
    """First byte and end in the storage, whole alignments."""
    dimensions = zip(tensor.shape, tensor.stride(), strict=True)
    last = sum((size - 1) * stride for size, stride in dimensions)
    elements = last + 1 if tensor.numel() else 0
    size = tensor.element_size()
    start = int(tensor.storage_offset()) * size
    end = start + elements * size
    return start // _ALIGNMENT_BYTES * _ALIGNMENT_BYTES, _aligned(end)


def _aligned(count: int) -> int:
    return -(-count // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _view(tensor: Tensor, span: int, start: int) -> View:
    return View(
        span=span,
        offset_bytes=int(tensor.storage_offset()) * tensor.element_size() - start,
        dtype=tensor.dtype,
        shape=tuple(tensor.shape),
        strides=tensor.stride(),
    )


def _copy(tensor: Tensor, start: int, end: int) -> Tensor:
    """Bytes [start, end) of a tensor's storage; 0 where that has ended before."""
    storage = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    part = storage.set_(tensor.untyped_storage())[start:end]
    copy = torch.zeros(end - start, dtype=torch.uint8, device=tensor.device)
    copy[: len(part)] = part
    return copy
