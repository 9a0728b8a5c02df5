"""Bytes that torch operators read and write, operand by operand.

No cache is assumed: an intermediate that is written and read back counts twice. This
is what a chain of operators asks of the memory system, not what reaches the memory.
"""

from typing import Any, Final

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_aten = torch.ops.aten

_FREE: Final = {
    _aten.empty,
    _aten.empty_like,
    _aten.empty_strided,
    _aten.new_empty,
    _aten.new_empty_strided,
    _aten._unsafe_view,  # noqa: SLF001 (a view that does not say so)
}

# operator -> the operand of which only as much is read as comes out
_PICKS: Final = {
    _aten.index_select: "self",
    _aten.gather: "self",
    _aten.index: "self",
    _aten.embedding: "weight",
}

# operator -> the operand that goes into some places of the first, unread
_PUTS: Final = {
    _aten.index_copy_: "source",
    _aten.index_put_: "values",
}

_OVERWRITES: Final = {_aten.copy_, _aten.fill_, _aten.zero_}


class Traffic(TorchDispatchMode):
    """Counts the bytes of every operator that runs while it is entered.

    Views and allocations are free. An operator reads its tensor arguments and writes
    its results; expanded dimensions count once; gathers read what they pick; puts
    write what they are given; in-place operators read and write their first operand,
    unless they overwrite it.
    """

    bytes: int
    """Counted so far."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's
        self.bytes = 0

    def __torch_dispatch__(
        self,
        func: OpOverload[Any, Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 (whatever the operator returns)
        """Run the operator, then add its bytes."""
        del types
        named = kwargs or {}
        result = func(*args, **named)
        if not func.is_view and func.overloadpacket not in _FREE:
            names = [argument.name for argument in func._schema.arguments]  # noqa: SLF001
            operands = dict(zip(names, args, strict=False)) | named
            self.bytes += _operator_bytes(func, operands, result)
        return result


def _operator_bytes(
    func: OpOverload[Any, Any], operands: dict[str, object], result: object
) -> int:
    packet, schema = func.overloadpacket, func._schema  # noqa: SLF001
    total = 0
    for argument in schema.arguments:
        size = _bytes(operands.get(argument.name))
        if argument.is_out:
            total += size
        elif argument.alias_info is not None and argument.alias_info.is_write:
            if packet in _PUTS:
                total += _bytes(operands[_PUTS[packet]])
            else:
                total += size if packet in _OVERWRITES else 2 * size
        elif argument.name == _PICKS.get(packet):
            total += _bytes(result)
        else:
            total += size
    if all(returned.alias_info is None for returned in schema.returns):
        total += _bytes(result)
    return total


def _bytes(value: object) -> int:
    """Bytes of all tensors in `value`, a dimension of stride 0 counting as 1."""
    return sum(
        _tensor_bytes(leaf) for leaf in tree_leaves(value) if isinstance(leaf, Tensor)
    )


def _tensor_bytes(tensor: Tensor) -> int:
    if tensor.numel() == 0:
        return 0
    elements = 1
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        elements *= length if stride else 1
    return elements * tensor.element_size()
