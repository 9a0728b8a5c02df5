"""Grouped-query attention of new rows at the end of a KV cache, in plain torch.

The rounding points are those of the eager implementations in `transformers`: norms and
softmax in float32 (or wider), all else in the type of the activations.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from layerscope.layers.spec import LayerSpec, ModelShape, RopeScaling
from layerscope.layers.weights import Weights, matrix


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary tables of the rows of a step, in the type of the activations."""

    cos: Tensor
    """[rows, 1, head_dim]."""

    sin: Tensor
    """[rows, 1, head_dim]."""


def rms_norm(
    rows: Tensor, weight: Tensor, eps: float, out: Tensor | None = None
) -> Tensor:
    """Root-mean-square norm over the last dimension, then `weight`, into `out`."""
    wide = rows.to(torch.promote_types(rows.dtype, torch.float32))
    variance = wide.pow(2).mean(-1, keepdim=True)
    normed = wide * torch.rsqrt(variance + eps)
    return torch.mul(weight, normed.to(rows.dtype), out=out)


def rope_tables(model: ModelShape, positions: Tensor, dtype: torch.dtype) -> Rope:
    """Tables for `positions`, int64 [rows], on their device.

    Computed on the CPU in float32 as `transformers` does: a last-bit difference in a
    frequency is multiplied by the position, and must not differ between devices.
    """
    angles = positions.cpu().float()[:, None] * _frequencies(model)
    angles = torch.cat((angles, angles), -1)[:, None, :]
    device = positions.device
    return Rope(
        angles.cos().to(dtype=dtype, device=device),
        angles.sin().to(dtype=dtype, device=device),
    )


def _frequencies(model: ModelShape) -> Tensor:
    exponents = torch.arange(0, model.head_dim, 2).float() / model.head_dim
    plain = 1.0 / model.rope_theta**exponents
    if model.rope_scaling is None:
        return plain
    return _scale_frequencies(plain, model.rope_scaling)


def _scale_frequencies(plain: Tensor, scaling: RopeScaling) -> Tensor:
    """Llama 3's: long wavelengths divided by the factor, a ramp between the two."""
    context = scaling.original_max_position_embeddings
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    wavelength = 2 * math.pi / plain
    ramp = (context / wavelength - low) / (high - low)
    blended = (1 - ramp) * plain / scaling.factor + ramp * plain
    scaled = torch.where(wavelength > context / low, plain / scaling.factor, blended)
    return torch.where(wavelength < context / high, plain, scaled)


def rotate(heads: Tensor, rope: Rope) -> Tensor:
    """Rotary embedding of [rows, heads, head_dim], first half paired with second."""
    first, second = heads.chunk(2, -1)
    return heads * rope.cos + torch.cat((-second, first), -1) * rope.sin


def project(
    hidden: Tensor, weights: Weights, spec: LayerSpec, rope: Rope
) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of the new rows, each [rows, heads, head_dim].

    Args:
        hidden: [rows, hidden_size], before the input norm.
        weights: of the pass; the result has the type of `hidden`.
        spec: heads and sizes of this rank.
        rope: tables of the rows.
    """
    dtype, eps = hidden.dtype, spec.model.rms_norm_eps
    normed = rms_norm(hidden, matrix(weights["input_norm"], dtype), eps)
    fused = functional.linear(normed, matrix(weights["qkv"], dtype))
    heads = fused.unflatten(-1, (-1, spec.model.head_dim))
    query, key, value = heads.split([spec.query_heads, spec.kv_heads, spec.kv_heads], 1)
    if "q_norm" in weights:
        query = rms_norm(query, matrix(weights["q_norm"], dtype), eps)
        key = rms_norm(key, matrix(weights["k_norm"], dtype), eps)
    return rotate(query, rope), rotate(key, rope), value


def causal_mask(spec: LayerSpec, device: torch.device, dtype: torch.dtype) -> Tensor:
    """0 where a new row may look, -inf elsewhere: [tokens_per_request, all tokens]."""
    tokens = spec.tokens_per_request
    shape = (tokens, spec.context + tokens)
    mask = torch.full(shape, -math.inf, device=device, dtype=dtype)
    return mask.triu(spec.context + 1)


def attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """Attention of every request's new rows over its tokens.

    Args:
        query: [rows, query_heads, head_dim], rows of a request together.
        keys: [requests, tokens, kv_heads, head_dim], new rows last.
        values: as `keys`.
        mask: from `causal_mask`.

    Returns:
        [requests, kv_heads, group, tokens_per_request, head_dim], where query head h
        is number h % group of KV head h // group.
    """
    requests, _, kv_heads, dim = keys.shape
    tokens = len(mask)
    grouped = query.view(requests, tokens, kv_heads, -1, dim).permute(0, 2, 3, 1, 4)
    stacked = grouped.flatten(2, 3)  # the group shares keys: one product for all of it
    scores = torch.matmul(stacked, keys.permute(0, 2, 3, 1)) * dim**-0.5
    scores = scores.unflatten(2, (-1, tokens)) + mask
    wide = torch.promote_types(query.dtype, torch.float32)
    shares = functional.softmax(scores, -1, dtype=wide).to(query.dtype)
    mixed = torch.matmul(shares.flatten(2, 3), values.transpose(1, 2))
    return torch.unflatten(mixed, 2, (-1, tokens))


def row_order(spec: LayerSpec, device: torch.device) -> Tensor:
    """Where the heads of `attend`'s result go, int64 [rows * query_heads].

    Indexes its first four dimensions seen as one, in the order of ``attn_out``.
    """
    tokens, kv_heads = spec.tokens_per_request, spec.kv_heads
    heads = torch.arange(spec.rows * spec.query_heads, device=device)
    grid = heads.view(spec.requests, kv_heads, -1, tokens)
    return grid.permute(0, 3, 1, 2).flatten()
