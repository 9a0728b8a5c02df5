"""Products with a few rows, by a loop of the compiler's own or by the matrix library.

These functions are traced, not run as they stand. In the loop a product is a sum of
elementwise products in float32, with dequantising and picking inside: the weight is
read once, where a call of the library would first need a dequantised or picked copy.
"""

from typing import Final, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from layerscope.layers.spec import QUANT_BLOCK
from layerscope.layers.weights import BlockScaled

LOOP_ROWS: Final = 8
"""Most rows whose products with a matrix become one loop. Every row is an accumulator,
and these must fit into registers."""

LOOP_ELEMENTS: Final = 4 << 20
"""Most elements of a block-scaled matrix whose products become one loop."""

PLAIN_LOOP_ELEMENTS: Final = 0
"""The same of a matrix without scales. On an H200 the matrix library was faster at any
size, and for block-scaled ones from this size on: NOTES.md has the figures."""


class Matrix(NamedTuple):
    """A matrix, or a stack of them, as tensors alone."""

    data: Tensor
    """[..., rows, cols]."""

    scale: Tensor | None
    """float32 [..., ceil(rows / 128), ceil(cols / 128)] where `data` is fp8."""


def matrix_of(weight: Tensor | BlockScaled) -> Matrix:
    """`weight` as a `Matrix`; no copy."""
    if isinstance(weight, BlockScaled):
        return Matrix(weight.data, weight.scale)
    return Matrix(weight, None)


def values(weight: Matrix) -> Tensor:
    """The values of `weight` in float32; in no memory of their own once fused."""
    if weight.scale is None:
        return weight.data.float()
    rows, cols = (
        torch.arange(length, device=weight.data.device) // QUANT_BLOCK
        for length in weight.data.shape[-2:]
    )
    return weight.data.float() * weight.scale[..., rows[:, None], cols]


def picked(weight: Matrix, index: Tensor) -> Tensor:
    """The values of matrices `index` of a stack, float32 [*index.shape, rows, cols]."""
    scale = None if weight.scale is None else weight.scale[index]
    return values(Matrix(weight.data[index], scale))


def dots(rows: Tensor, weight: Tensor) -> list[Tensor]:
    """Each of `rows` [n, cols] times `weight` [outputs, cols]: n times [outputs].

    All n sums read the same elements of `weight`, so they become one loop over it.
    """
    return [(weight * row).sum(-1) for row in rows.float().unbind(0)]


def linear(rows: Tensor, weight: Matrix) -> Tensor:
    """`rows` [n, cols] times `weight` [outputs, cols]: [n, outputs], in their type."""
    is_plain = weight.scale is None
    most = PLAIN_LOOP_ELEMENTS if is_plain else LOOP_ELEMENTS
    if len(rows) <= LOOP_ROWS and weight.data.numel() <= most:
        return torch.stack(dots(rows, values(weight))).to(rows.dtype)
    whole = weight.data if is_plain else values(weight)
    return functional.linear(rows, whole.to(rows.dtype))


def stored(tensor: Tensor) -> Tensor:
    """`tensor`, written to memory at this point.

    Else the compiler may compute it anew for every element that reads it: an
    activation function, say, for each output of the product after it.
    """
    # A view by strides needs memory to view; nothing public asks for that directly.
    return tensor.as_strided(tensor.shape, tensor.stride())
