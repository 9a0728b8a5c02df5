"""The dense MLP and the routed experts, as functions for the compiler to trace."""

from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from layerscope.layers.spec import LayerSpec
from layerscope_torch_compile.products import Matrix, linear, picked, stored


class MlpTensors(NamedTuple):
    """What the MLP reads and writes in one pass."""

    hidden: Tensor
    residual: Tensor
    out: Tensor
    gate_up: Matrix
    down: Matrix


class MoeTensors(NamedTuple):
    """What the experts read and write in one pass."""

    hidden: Tensor
    residual: Tensor
    out: Tensor
    router: Matrix
    bias: Tensor
    """float32 [rows, experts]."""

    gate_up: Matrix
    down: Matrix
    ids: tuple[Tensor, ...]
    """top_k times int64 [rows], written: the chosen experts, best first. Tensors of
    their own, for the kernel that chooses them makes one column after another."""


def mlp(tensors: MlpTensors) -> None:
    """The region: gate and up, activation, down, residual."""
    gate, up = linear(tensors.hidden, tensors.gate_up).chunk(2, -1)
    active = stored(functional.silu(gate) * up)
    tensors.out.copy_(tensors.residual + linear(active, tensors.down))


def moe(spec: LayerSpec) -> Callable[[MoeTensors], None]:
    """The region for `spec`: router, choice, experts of every row, residual.

    Every pair of a row and its expert reads that expert's weights where they lie. Two
    rows with the same expert read them twice, the second time most likely from the
    cache.
    """
    top_k, normalised = spec.model.experts_per_token, spec.model.normalize_top_k

    def run(tensors: MoeTensors) -> None:
        hidden = tensors.hidden
        logits = linear(hidden, tensors.router)
        shares = stored(functional.softmax(logits + tensors.bias, -1))
        columns, total = largest(shares, top_k)
        for column, ids in zip(tensors.ids, columns, strict=True):
            column.copy_(ids)
        chosen = stored(torch.stack(columns, 1))
        weights = shares.gather(1, chosen)
        if normalised:
            weights = weights / total[:, None]

        rows = hidden.float()[:, None, None]
        gate, up = picked(tensors.gate_up, chosen).chunk(2, -2)
        gated = functional.silu((gate * rows).sum(-1)) * (up * rows).sum(-1)
        active = stored(gated.to(hidden.dtype))

        scaled = (active * weights[..., None])[:, :, None]
        added = (picked(tensors.down, chosen) * scaled).sum((1, 3))
        tensors.out.copy_(tensors.residual + added)

    return run


def largest(shares: Tensor, count: int) -> tuple[list[Tensor], Tensor]:
    """Columns of the `count` largest of each row, best first, and their sums.

    A loop of plain reductions stays in one kernel with the softmax before it, which
    `torch.topk` does not. Equal shares go to the lower id.
    """
    experts = torch.arange(shares.shape[-1], device=shares.device)
    columns, best = [], []
    for _ in range(count):
        best.append(shares.amax(-1))
        columns.append(shares.argmax(-1))
        shares = torch.where(experts == columns[-1][:, None], -1.0, shares)
    return columns, stored(reduce(torch.add, best))
