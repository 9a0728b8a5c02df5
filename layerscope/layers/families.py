"""The tables of every family behind one door, and what follows from them, no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from layerscope.layers import llama, qwen3_moe
from layerscope.layers.spec import Family, LayerSpec, ModelShape
from layerscope.layers.tensors import Source, TensorSpec, activation_bytes, kv_row_bytes
from layerscope.regions import Region

_INT32_BYTES: Final = 4
_INT64_BYTES: Final = 8
_FLOAT32_BYTES: Final = 4


@dataclass(frozen=True, slots=True)
class FamilyTable:
    """What a family states about itself."""

    tensors: Callable[[LayerSpec], tuple[TensorSpec, ...]]
    sources: Callable[[ModelShape], dict[str, Source]]
    required_bytes: Callable[[LayerSpec, int | None], dict[Region, int]]


FAMILIES: Final[dict[Family, FamilyTable]] = {
    Family.LLAMA: FamilyTable(llama.tensors, llama.sources, llama.required_bytes),
    Family.QWEN3_MOE: FamilyTable(
        qwen3_moe.tensors, qwen3_moe.sources, qwen3_moe.required_bytes
    ),
}


def layer_tensors(spec: LayerSpec) -> tuple[TensorSpec, ...]:
    """The weights of one rank of the layer, in execution order."""
    return FAMILIES[spec.model.family].tensors(spec)


def weight_bytes(spec: LayerSpec, distinct_experts: int | None) -> dict[str, int]:
    """Bytes of each weight that a pass reads, by name, with block scales.

    Args:
        spec: the layer and its workload.
        distinct_experts: distinct experts over all rows of the pass, of which alone the
            weights are read; None if dense.

    Raises:
        ValueError: `distinct_experts` does not fit the family.
    """
    if (distinct_experts is None) == bool(spec.model.experts):
        msg = f"{spec.model.name} and distinct_experts {distinct_experts} do not fit"
        raise ValueError(msg)
    found = {}
    for tensor in layer_tensors(spec):
        experts, *matrix = tensor.shape
        read = tensor
        if len(matrix) > 1 and distinct_experts is not None:
            assert experts == spec.model.experts  # noqa: S101 (stacked by expert)
            shape = (distinct_experts, *matrix)
            read = msgspec.structs.replace(tensor, shape=shape)
        found[tensor.name] = read.stored_bytes(spec)
    return found


def required_bytes(spec: LayerSpec, distinct_experts: int | None) -> dict[Region, int]:
    """Bytes that each region of one pass must move on one rank.

    Counted, each once: the region's weights in their stored type with block scales (of
    experts only the distinct ones that the pass chose, and the router in full); norm
    weights; K and V of the context read, of the new rows written; the region's input
    and output activations as its signature names them. Not counted: positions, page
    tables, RoPE tables, routing bias and ids (together under 0.1 % at real sizes),
    anything a region keeps to itself, and communication between ranks. A backend that
    keeps a value on chip from one region to the next may move less than the sum.

    Args:
        spec: the layer and its workload.
        distinct_experts: distinct experts over all rows of the pass; None if dense.

    Raises:
        ValueError: `distinct_experts` does not fit the family.
    """
    return FAMILIES[spec.model.family].required_bytes(spec, distinct_experts)


def estimate_bytes(spec: LayerSpec, passes: int, steps: int) -> int:
    """Device bytes of a problem: weights, KV caches, buffers and input pools.

    Equal to what `problem.make_problem` allocates and keeps; what a backend adds and
    the rounding of the allocator come on top.
    """
    model, rows = spec.model, spec.rows
    weights = sum(tensor.stored_bytes(spec) for tensor in layer_tensors(spec))
    pages = spec.requests * spec.pages_per_request
    cache = pages * (spec.page_size * kv_row_bytes(spec) + _INT32_BYTES)
    hidden = activation_bytes(spec)
    attn_out = rows * spec.query_heads * model.head_dim * spec.dtype.bytes
    bias = rows * model.experts * _FLOAT32_BYTES
    per_pass = weights + cache + attn_out + 3 * hidden + (1 + steps) * bias
    counters = 3  # step, launches, hold
    once = hidden + steps * hidden + (rows + counters) * _INT64_BYTES
    return passes * per_pass + once
