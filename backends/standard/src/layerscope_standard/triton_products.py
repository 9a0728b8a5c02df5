"""Products with a few rows by Triton; see `products` and `triton_kernels`."""

from typing import Final

from torch import Tensor

from layerscope.layers.spec import QUANT_BLOCK
from layerscope.layers.weights import BlockScaled
from layerscope_standard.kernels import Operation
from layerscope_standard.selection import Choice
from layerscope_standard.splitting import product_splits
from layerscope_standard.triton_launching import TritonArgument, triton_operation
from layerscope_standard.workshop import Workshop, stored

_ROWS: Final = 8
_OUTPUTS: Final = 16
_K: Final = 128
_WARPS: Final = 4
_STAGES: Final = 4
_UNIT: Final = 32


def outputs_of(choice: Choice) -> int:
    """Of a tile."""
    return choice.option("outputs", _OUTPUTS)


def k_of(choice: Choice, weight: Tensor | BlockScaled) -> int:
    """Elements of k that a program takes at a time; within a block of scales."""
    k = choice.option("k", _K)
    return min(k, QUANT_BLOCK) if isinstance(weight, BlockScaled) else k


def tile_arguments(
    choice: Choice, weight: Tensor | BlockScaled
) -> dict[str, TritonArgument]:
    """What all kernels with weights are called with, and how they are cut."""
    values, scales = stored(weight)
    return {
        "weights": values,
        "scales": values if scales is None else scales,
        "ROWS": _ROWS,
        "OUTPUTS": outputs_of(choice),
        "K": k_of(choice, weight),
        "QUANT": 0 if scales is None else QUANT_BLOCK,
        "EMULATED": values.device.type == "cpu",
        "num_warps": choice.option("warps", _WARPS),
        "num_stages": choice.option("stages", _STAGES),
    }


def planned_splits(
    choice: Choice, weight: Tensor | BlockScaled, processors: int
) -> int:
    """Into how many parts k is cut, if `choice` does not say."""
    outputs, inputs = stored(weight)[0].shape
    k = k_of(choice, weight)
    tiles, most = -(-outputs // outputs_of(choice)), -(-inputs // k)
    return min(most, product_splits(tiles, -(-inputs // _UNIT), processors))


def product_operation(
    workshop: Workshop,
    named: tuple[str, Choice],
    weight: Tensor | BlockScaled,
    rows: Tensor,
    parts: Tensor,
) -> Operation:
    """Write the parts of `rows` times `weight`; see `products.Product.operation`.

    Args:
        workshop: what the layer is made with.
        named: the role, and how it is cut.
        weight: [outputs, inputs].
        rows: [rows, inputs].
        parts: float32 [splits, rows, outputs], written.

    Raises:
        BackendError: the kernel cannot be compiled or loaded.
    """
    from layerscope_standard.triton_kernels import product_kernel

    role, choice = named
    splits, count, outputs = parts.shape
    return triton_operation(
        workshop,
        role,
        product_kernel,
        (-(-outputs // outputs_of(choice)), splits, 1),
        {
            **tile_arguments(choice, weight),
            "rows": rows,
            "parts": parts,
            "row_count": count,
            "outputs": outputs,
            "inputs": rows.shape[-1],
        },
    )
