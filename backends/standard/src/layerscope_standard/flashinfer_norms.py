"""Root-mean-square norms by flashinfer."""

from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from layerscope.errors import BackendError
from layerscope_standard.kernels import Operation
from layerscope_standard.triton_launching import is_programmatic
from layerscope_standard.workshop import Workshop


def norm_operation(
    workshop: Workshop,
    role: str,
    given: tuple[Tensor, Tensor],
    normed: Tensor,
    eps: float,
) -> Operation:
    """Norm rows.

    Args:
        workshop: what the layer is made with.
        role: of the kernel.
        given: rows [rows, size] and the weight [size].
        normed: [rows, size], written.
        eps: added to the mean of the squares.

    Raises:
        BackendError: flashinfer cannot build its kernels.
    """
    norms, pdl = _module(), is_programmatic(workshop)
    rows, weight = given

    def enqueue() -> None:
        norms.rmsnorm(rows, weight, eps, out=normed, enable_pdl=pdl)

    enqueue()  # kernels are loaded by their first launch, which no graph may capture
    return Operation(role, enqueue)


def add_norm_operations(
    workshop: Workshop,
    role: str,
    given: tuple[Tensor, Tensor, Tensor],
    written: tuple[Tensor, Tensor],
    eps: float,
) -> list[Operation]:
    """Add a product to the residual, and norm the sum.

    flashinfer's fused kernel takes the product in bfloat16 and overwrites product and
    residual. Here the product is float32 and the residual the input of the layer, which
    stays: a first kernel copies both to where they may be overwritten.

    Args:
        workshop: what the layer is made with.
        role: of the second kernel.
        given: the product in one part, float32 [1, rows, size], the residual [rows,
            size] and the weight [size].
        written: the sum and its norm, both [rows, size].
        eps: added to the mean of the squares.

    Raises:
        BackendError: flashinfer cannot build its kernels; or the product is in parts.
    """
    parts, residual, weight = given
    summed, normed = written
    if len(parts) != 1:
        msg = (
            f"standard: flashinfer cannot run {role} after a product in {len(parts)} "
            "parts; choose one part for it in selection.toml"
        )
        raise BackendError(msg)

    def add() -> None:
        torch.add(parts[0], residual, out=summed)

    norm = norm_operation(workshop, role, (summed, weight), normed, eps)
    return [Operation("add", add), norm]


def _module() -> Any:  # noqa: ANN401 (untyped)
    norms = import_module("flashinfer.norm")
    try:
        norms.get_norm_module()
    except RuntimeError as error:
        first = str(error).partition("\n")[0]
        msg = f"standard: flashinfer cannot build its norms: {first}"
        raise BackendError(msg) from error
    return norms
