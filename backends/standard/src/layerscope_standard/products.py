"""Products with a few rows: qkv, the output projection, the router."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from layerscope.layers.weights import BlockScaled
from layerscope_standard.kernels import Kernel, Operation
from layerscope_standard.selection import CUBLASLT, TRITON, Choice
from layerscope_standard.splitting import (
    PRODUCT_WARPS,
    TILE_OUTPUTS,
    product_splits,
    units_of,
)
from layerscope_standard.triton_products import planned_splits, product_operation
from layerscope_standard.workshop import Workshop, plain, stored, suffix, unit

_DEPTH: Final = 4
"""Units of k whose weights a warp has in flight."""


@dataclass(frozen=True, slots=True)
class Product:
    """One product of the layer, the same in all passes."""

    workshop: Workshop
    role: str
    choice: Choice
    parts: Tensor
    """float32 [splits, rows, outputs], written; their sum is the product."""

    @property
    def splits(self) -> int:
        """How many parts are to be added."""
        return len(self.parts)

    def operation(self, weight: Tensor | BlockScaled, rows: Tensor) -> Operation:
        """Write the parts of `rows` [rows, inputs] times `weight` [outputs, inputs]."""
        if self.choice.candidate == CUBLASLT:
            return Operation(self.role, lambda: self._library(plain(weight), rows))
        if self.choice.candidate == TRITON:
            named = self.role, self.choice
            return product_operation(self.workshop, named, weight, rows, self.parts)
        _, count, outputs = self.parts.shape
        tiles = self.choice.option("tiles", 1)
        values, scales = self.workshop.operand(weight)
        return self.workshop.operation(
            self.role,
            Kernel(
                "product",
                f"product_{suffix(weight)}",
                32 * PRODUCT_WARPS,
                (("TILES", tiles), ("DEPTH", self.choice.option("depth", _DEPTH))),
            ),
            (-(-outputs // (tiles * TILE_OUTPUTS)), self.splits, 1),
            (values, scales, rows, self.parts, count, outputs, values.shape[-1]),
        )

    def _library(self, weight: Tensor, rows: Tensor) -> None:
        torch.mm(rows, weight.T, out_dtype=torch.float32, out=self.parts[0])


def product(
    workshop: Workshop, role: str, weight: Tensor | BlockScaled, rows: int
) -> Product:
    """Choose how products of `rows` rows with matrices like `weight` are made."""
    values, _ = stored(weight)
    outputs, inputs = values.shape
    shape = {
        "weights": "float8_e4m3" if isinstance(weight, BlockScaled) else "bfloat16",
        "rows": rows,
        "outputs": outputs,
        "inputs": inputs,
    }
    choice = workshop.selection.choose(role, shape)
    splits = choice.option("splits", _planned(workshop, choice, weight))
    parts = workshop.empty(splits, rows, outputs)
    return Product(workshop, role, choice, parts)


def _planned(workshop: Workshop, choice: Choice, weight: Tensor | BlockScaled) -> int:
    """Into how many parts k is cut."""
    if choice.candidate == CUBLASLT:
        return 1
    if choice.candidate == TRITON:
        return planned_splits(choice, weight, workshop.processors)
    outputs, inputs = stored(weight)[0].shape
    tiles = -(-outputs // (choice.option("tiles", 1) * TILE_OUTPUTS))
    units = units_of(inputs, unit(weight))
    return product_splits(tiles, units, workshop.processors)
