"""The second half of a layer in plain torch: dense gated MLP, or routed experts."""

from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from layerscope.layers.spec import ModelShape
from layerscope.layers.weights import BlockScaled, Weights, matrix, pick

_MOST_GATHERED_BYTES: Final = 1 << 29
"""Of gate_up, copied at once: every graph that is captured keeps as much."""


def mlp(hidden: Tensor, weights: Weights) -> Tensor:
    """What the dense MLP adds to the residual, [rows, hidden_size]."""
    gate_up = functional.linear(hidden, matrix(weights["gate_up"], hidden.dtype))
    gate, up = gate_up.chunk(2, -1)
    down = matrix(weights["down"], hidden.dtype)
    return functional.linear(functional.silu(gate) * up, down)


def route(
    hidden: Tensor, weights: Weights, bias: Tensor, model: ModelShape, ids: Tensor
) -> Tensor:
    """Choose experts: softmax over logits + bias in float32, the largest top_k.

    Args:
        hidden: [rows, hidden_size], normed.
        weights: of the pass.
        bias: float32 [rows, experts].
        model: top_k and whether the chosen weights are normalised.
        ids: int64 [rows, top_k], written: the chosen experts.

    Returns:
        The weight of each chosen expert, [rows, top_k] in the type of `hidden`.
    """
    logits = functional.linear(hidden, matrix(weights["router"], hidden.dtype))
    shares = functional.softmax(logits + bias, -1)
    chosen = torch.empty_like(ids, dtype=shares.dtype)
    torch.topk(shares, model.experts_per_token, out=(chosen, ids))
    if model.normalize_top_k:
        chosen = chosen / chosen.sum(-1, keepdim=True)
    return chosen.to(hidden.dtype)


def moe(hidden: Tensor, weights: Weights, ids: Tensor, shares: Tensor) -> Tensor:
    """What the chosen experts add to the residual, [rows, hidden_size].

    Gathers the weights of every (row, expert), so an expert that two rows chose is
    copied twice: plain, and the same shapes whatever was chosen. Many rows take turns.

    Args:
        hidden: [rows, hidden_size], normed.
        weights: of the pass.
        ids: int64 [rows, top_k].
        shares: [rows, top_k] in the type of `hidden`.
    """
    experts = weights["gate_up"]
    values = experts.data if isinstance(experts, BlockScaled) else experts
    row_bytes = ids.shape[1] * values[0].numel() * hidden.element_size()
    at_once = max(1, _MOST_GATHERED_BYTES // row_bytes)
    parts = zip(*(each.split(at_once) for each in (hidden, ids, shares)), strict=True)
    mixed = [_mix(weights, *part) for part in parts]
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def _mix(weights: Weights, hidden: Tensor, ids: Tensor, shares: Tensor) -> Tensor:
    rows, dtype = hidden.shape[0], hidden.dtype
    gate_up = pick(weights["gate_up"], ids.flatten(), dtype).unflatten(0, (rows, -1))
    gate, up = torch.matmul(gate_up, hidden[:, None, :, None]).chunk(2, -2)
    down = pick(weights["down"], ids.flatten(), dtype).unflatten(0, (rows, -1))
    each = torch.matmul(down, functional.silu(gate) * up).squeeze(-1)
    return (each * shares[:, :, None]).sum(1)
