"""The weights of a layer as a table: names, shapes, how they shard and are stored.

Without torch, so that reports can count bytes. The families (`llama`, `qwen3_moe`)
fill the table; what they share is here.
"""

from enum import StrEnum
from math import prod
from typing import Final

import msgspec

from layerscope.layers.spec import QUANT_BLOCK, DType, LayerSpec, ModelShape
from layerscope.regions import Region

SCALE_BYTES: Final = 4
"""One fp32 scale a block."""


class Split(StrEnum):
    """How the ranks of a tensor-parallel group divide a tensor."""

    NONE = "none"  # every rank holds all of it
    QKV_ROWS = "qkv_rows"  # whole heads of q, k and v; KV heads may be replicated
    PAIR_ROWS = "pair_rows"  # rows of gate and rows of up, each divided
    COLUMNS = "columns"  # the input; ranks make partial sums


class TensorSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One weight tensor of a layer, as one rank holds it."""

    name: str
    shape: tuple[int, ...]  # matrices are [..., outputs, inputs]
    split: Split = Split.NONE
    quantised: bool = False  # stored in `LayerSpec.weight_dtype`, else in `dtype`
    fan_in: int | None = None  # inputs before sharding; None for a norm's weight

    def dtype(self, spec: LayerSpec) -> DType:
        """The element type it is stored in."""
        return spec.weight_dtype if self.quantised else spec.dtype

    def stored_bytes(self, spec: LayerSpec) -> int:
        """Bytes in memory, with the scales of a block-scaled tensor."""
        dtype = self.dtype(spec)
        size = prod(self.shape) * dtype.bytes
        if dtype is DType.FLOAT8_E4M3:
            blocks = (-(-length // QUANT_BLOCK) for length in self.shape[-2:])
            size += prod(self.shape[:-2]) * prod(blocks) * SCALE_BYTES
        return size


class Part(msgspec.Struct, frozen=True):
    """A tensor in a checkpoint, named without the ``model.layers.N.`` prefix."""

    name: str
    shape: tuple[int, ...]


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where a checkpoint keeps one tensor of the table, before sharding."""

    parts: tuple[Part, ...]
    """Concatenated by rows. With `experts`, names contain ``{expert}``."""

    experts: int = 0
    """If set, the parts exist once an expert and are stacked."""

    fused: Part | None = None
    """The same tensor in one piece, where some writers store it so."""


def attention_tensors(spec: LayerSpec, *, qk_norm: bool) -> tuple[TensorSpec, ...]:
    """Weights up to the post-attention norm, in execution order.

    ``qkv`` has the rows of q, then k, then v; q head h reads KV head
    ``h // (query heads / KV heads)``.
    """
    model = spec.model
    hidden, dim = model.hidden_size, model.head_dim
    heads = spec.query_heads + 2 * spec.kv_heads
    norms = ("q_norm", "k_norm") if qk_norm else ()
    return (
        TensorSpec(name="input_norm", shape=(hidden,)),
        TensorSpec(
            name="qkv",
            shape=(heads * dim, hidden),
            split=Split.QKV_ROWS,
            quantised=True,
            fan_in=hidden,
        ),
        *(TensorSpec(name=name, shape=(dim,)) for name in norms),
        TensorSpec(
            name="o",
            shape=(hidden, spec.query_heads * dim),
            split=Split.COLUMNS,
            quantised=True,
            fan_in=model.query_heads * dim,
        ),
        TensorSpec(name="post_norm", shape=(hidden,)),
    )


def attention_sources(model: ModelShape, *, qk_norm: bool) -> dict[str, Source]:
    """Where a checkpoint keeps the tensors of `attention_tensors`."""
    hidden, dim = model.hidden_size, model.head_dim
    query, kv = model.query_heads * dim, model.kv_heads * dim
    norms = ("q_norm", "k_norm") if qk_norm else ()
    return {
        "input_norm": plain("input_layernorm.weight", (hidden,)),
        "qkv": Source(
            parts=(
                Part("self_attn.q_proj.weight", (query, hidden)),
                Part("self_attn.k_proj.weight", (kv, hidden)),
                Part("self_attn.v_proj.weight", (kv, hidden)),
            )
        ),
        **{name: plain(f"self_attn.{name}.weight", (dim,)) for name in norms},
        "o": plain("self_attn.o_proj.weight", (hidden, query)),
        "post_norm": plain("post_attention_layernorm.weight", (hidden,)),
    }


def plain(name: str, shape: tuple[int, ...]) -> Source:
    """The source of a tensor that a checkpoint keeps under one name."""
    return Source(parts=(Part(name, shape),))


def attention_bytes(spec: LayerSpec, *, qk_norm: bool) -> dict[Region, int]:
    """Bytes that attention and o_proj_all_reduce must move; see `required_bytes`."""
    weights = {
        tensor.name: tensor.stored_bytes(spec)
        for tensor in attention_tensors(spec, qk_norm=qk_norm)
    }
    o_proj_weights = weights.pop("o") + weights.pop("post_norm")
    dim = spec.model.head_dim
    hidden = activation_bytes(spec)
    attn_out = spec.rows * spec.query_heads * dim * spec.dtype.bytes
    return {
        Region.ATTENTION: sum(weights.values())
        + cached_bytes(spec)
        + spec.rows * kv_row_bytes(spec)
        + hidden
        + attn_out,
        Region.O_PROJ_ALL_REDUCE: o_proj_weights + attn_out + 3 * hidden,
    }


def kv_row_bytes(spec: LayerSpec) -> int:
    """Bytes of K and V of one row on one rank."""
    return 2 * spec.kv_heads * spec.model.head_dim * spec.dtype.bytes


def cached_bytes(spec: LayerSpec) -> int:
    """Bytes of the K and V that are in the cache before the step, of all requests."""
    return spec.requests * spec.context * kv_row_bytes(spec)


def activation_bytes(spec: LayerSpec) -> int:
    """Bytes of one [rows, hidden size] activation."""
    return spec.rows * spec.model.hidden_size * spec.dtype.bytes
