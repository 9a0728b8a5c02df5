"""The kernel that norms its rows and multiplies them with a tile of qkv."""

from typing import Final

from torch import Tensor

from layerscope.layers.weights import BlockScaled
from layerscope_standard.kernels import Kernel, Operation
from layerscope_standard.splitting import TILE_OUTPUTS
from layerscope_standard.workshop import Workshop, suffix

PACKAGE: Final = "layerscope_nvidia_mega"
ROLE: Final = "norm+qkv"

_THREADS: Final = 256
_PADDING: Final = 64
_MOST_SIZE: Final = 2048
"""Of a row: more of eight rows are not held in half the registers of a processor."""


def fits(outputs: int, size: int, processors: int) -> bool:
    """Whether it pays: all blocks norm at once, none after another has multiplied."""
    return not why_not(outputs, size, processors)


def why_not(outputs: int, size: int, processors: int) -> str:
    """Why it does not fit, or nothing."""
    if size > _MOST_SIZE:
        return f"a row has {size} elements, more than the {_MOST_SIZE} that it norms"
    if -(-outputs // TILE_OUTPUTS) > processors:
        most = TILE_OUTPUTS * processors
        return (
            f"qkv has {outputs} outputs, more than the {most} of one block for each of "
            f"{processors} processors"
        )
    return ""


def norm_product(
    workshop: Workshop,
    weight: Tensor | BlockScaled,
    norm_weight: Tensor,
    hidden: Tensor,
    parts: Tensor,
    eps: float,
) -> Operation:
    """Write the product of `weight` and normed rows into the only one of `parts`.

    Args:
        workshop: what launches.
        weight: [outputs, size].
        norm_weight: [size].
        hidden: [rows, size], bfloat16.
        parts: float32 [1, rows, outputs].
        eps: added to the mean of squares.
    """
    values, scales = workshop.operand(weight)
    outputs, size = values.shape
    rows = len(hidden)
    return workshop.operation(
        ROLE,
        Kernel(
            "norm_product",
            f"norm_product_{suffix(weight)}",
            _THREADS,
            (("SIZE", size), ("ROWS", rows)),
            PACKAGE,
        ),
        (-(-outputs // TILE_OUTPUTS), 1, 1),
        (values, scales, norm_weight, hidden, parts, outputs, eps),
        rows * (2 * size + _PADDING),
    )
