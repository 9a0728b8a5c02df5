"""fp8 weights in the order that the kernels take apart with the fewest instructions.

Servers reorder weights once, when they load a model. So does a layer here when it is
built; layers of one problem share what was made.
"""

from typing import Final

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

_HALVES: Final = ((0, 0), (1, 8))
"""Of a word: where its half goes, and by how much its two bytes are shifted."""

_SIGN, _FIELDS, _HIGH_FIELDS, _LOW_FIELDS = 0x80, 0x7F, 0x70, 0x0F

_made: Final = WeakTensorKeyDictionary()
"""Packed weights by their values, for as long as those are there, with the version of
the values that they are of."""


def packed_once(values: Tensor) -> tuple[Tensor, bool]:
    """What `packed` gives, and whether it was made for this call.

    The same tensor for as long as `values` is there and is not written to. Weights do
    not change while something that was built with them runs.
    """
    version = values._version  # noqa: SLF001 (of writes in place; torch has no other)
    found: tuple[int, Tensor] | None = _made.get(values)
    if found is not None and found[0] == version:
        return found[1], False
    made = packed(values)
    _made[values] = version, made
    return made, True


def packed(values: Tensor) -> Tensor:
    """The bits of four values of every word so mixed that two are an operation away.

    Of a half of the result, with a of the first two values and b of the other two: the
    sign of a is bit 15 and its fields (exponent and mantissa) are bits 10 to 4, where
    bfloat16 has them; the sign of b is bit 11, the high three bits of its fields are
    bits 14 to 12, and the low four bits 3 to 0. Four bits higher or lower, these are
    where those of a are.

    Args:
        values: float8_e4m3fn [..., n], n a multiple of four, contiguous.

    Returns:
        As `values`; its bytes are no values any more.
    """
    words = values.view(torch.int16)
    first, second = words[..., ::2], words[..., 1::2]
    halves = torch.empty_like(words)
    for half, shift in _HALVES:
        a, b = first >> shift, second >> shift
        halves[..., half::2] = (
            (a & _SIGN) << 8
            | (a & _FIELDS) << 4
            | (b & _SIGN) << 4
            | (b & _HIGH_FIELDS) << 8
            | (b & _LOW_FIELDS)
        )
    return halves.view(values.dtype)
