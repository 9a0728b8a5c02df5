"""Root-mean-square norms by Triton, one program a row; see `triton_kernels`."""

from typing import Final

from torch import Tensor

from layerscope_standard.kernels import Operation
from layerscope_standard.selection import Choice
from layerscope_standard.triton_launching import triton_operation
from layerscope_standard.workshop import Workshop

_WARPS: Final = 8


def norm_operation(
    workshop: Workshop,
    named: tuple[str, Choice],
    given: tuple[Tensor | None, Tensor, Tensor],
    written: tuple[Tensor, Tensor],
    eps: float,
) -> Operation:
    """Norm rows, after adding the parts of a product where there are some.

    Args:
        workshop: what the layer is made with.
        named: the role, and with how many ``warps``.
        given: float32 parts [splits, rows, size] or None, the residual [rows, size] and
            the weight [size].
        written: the sum and its norm, both [rows, size]; the sum only where there are
            parts.
        eps: added to the mean of the squares.

    Raises:
        BackendError: the kernel cannot be compiled or loaded.
    """
    from layerscope_standard.triton_kernels import norm_kernel

    role, choice = named
    parts, residual, weight = given
    summed, normed = written
    rows, size = residual.shape
    return triton_operation(
        workshop,
        role,
        norm_kernel,
        (rows, 1, 1),
        {
            "parts": residual if parts is None else parts,
            "residual": residual,
            "weight": weight,
            "summed": summed,
            "normed": normed,
            "splits": 0 if parts is None else len(parts),
            "size": size,
            "eps": eps,
            "SIZE": 1 << (size - 1).bit_length(),
            "ADDS": parts is not None,
            "num_warps": choice.option("warps", _WARPS),
        },
    )
