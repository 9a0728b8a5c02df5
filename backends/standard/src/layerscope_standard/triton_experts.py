"""A small aligned mixture of experts by Triton, over the table of code/table.cuh.

Three kernels, as servers have them: gate and up with the activation, down for each pair
of a row and an expert, and the weighted sum of a row's pairs with the residual.
"""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

from layerscope.layers.weights import BlockScaled
from layerscope_standard.kernels import Operation
from layerscope_standard.selection import Choice
from layerscope_standard.triton_launching import triton_operation
from layerscope_standard.triton_products import outputs_of, tile_arguments
from layerscope_standard.workshop import Workshop

_SUM_OUTPUTS: Final = 256


@dataclass(frozen=True, slots=True)
class Routed:
    """What the kernels know of the step."""

    workshop: Workshop
    table: Tensor
    """int32; see code/table.cuh."""

    top_k: int
    most_experts: int
    """That may have rows."""


def gate_up_operation(
    routed: Routed,
    choice: Choice,
    weight: Tensor | BlockScaled,
    rows: Tensor,
    active: Tensor,
) -> Operation:
    """From normed rows to the activation of each pair.

    Args:
        routed: the step.
        choice: how the kernel is cut.
        weight: [experts, 2 * width, inputs].
        rows: [rows, inputs].
        active: [pairs, width], written.

    Raises:
        BackendError: the kernel cannot be compiled or loaded.
    """
    from layerscope_standard.triton_kernels import gate_up_kernel

    width = active.shape[-1]
    return triton_operation(
        routed.workshop,
        "gate_up",
        gate_up_kernel,
        (-(-width // outputs_of(choice)), routed.most_experts, 1),
        {
            **tile_arguments(choice, weight),
            "rows": rows,
            "table": routed.table,
            "active": active,
            "width": width,
            "inputs": rows.shape[-1],
            "top_k": routed.top_k,
        },
    )


def down_operations(
    routed: Routed,
    choice: Choice,
    weight: Tensor | BlockScaled,
    given: tuple[Tensor, Tensor, Tensor, Tensor],
    out: Tensor,
) -> list[Operation]:
    """From the activation of each pair to the output of the layer, in two kernels.

    Args:
        routed: the step.
        choice: how the first kernel is cut.
        weight: [experts, outputs, width].
        given: activations [pairs, width], float32 memory for outputs of pairs [pairs,
            outputs], float32 weights of pairs [rows, top_k], and the residual [rows,
            outputs].
        out: [rows, outputs], written.

    Raises:
        BackendError: a kernel cannot be compiled or loaded.
    """
    from layerscope_standard.triton_kernels import down_kernel, sum_kernel

    active, each, row_weights, residual = given
    rows, outputs = out.shape
    down = triton_operation(
        routed.workshop,
        "down",
        down_kernel,
        (-(-outputs // outputs_of(choice)), routed.most_experts, 1),
        {
            **tile_arguments(choice, weight),
            "active": active,
            "table": routed.table,
            "each": each,
            "outputs": outputs,
            "inputs": active.shape[-1],
        },
    )
    weighted_sum = triton_operation(
        routed.workshop,
        "sum",
        sum_kernel,
        (-(-outputs // _SUM_OUTPUTS), rows, 1),
        {
            "each": each,
            "row_weights": row_weights,
            "residual": residual,
            "out": out,
            "outputs": outputs,
            "top_k": routed.top_k,
            "OUTPUTS": _SUM_OUTPUTS,
            "num_warps": 1,
        },
    )
    return [down, weighted_sum]
