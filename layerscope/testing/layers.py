"""The layers that a backend is checked on unless its author names others."""

from collections.abc import Iterable
from itertools import product
from typing import Final

from msgspec import structs

from layerscope.layers.presets import preset
from layerscope.layers.spec import DType, Family, LayerSpec, ModelShape
from layerscope.plugin import BackendSpec

_VOCABULARY: Final = 1_000
"""No multiple of a block of weights, so that the draft's last one is ragged."""

_TINY: Final[dict[Family, ModelShape]] = {
    Family.QWEN3_MOE: structs.replace(preset("tiny-moe"), vocab_size=_VOCABULARY),
    Family.LLAMA: ModelShape(  # no real model; the sizes of tiny-moe
        name="tiny-dense",
        family=Family.LLAMA,
        layers=4,
        hidden_size=256,
        query_heads=8,
        kv_heads=2,
        head_dim=64,
        rms_norm_eps=1e-5,
        rope_theta=5e5,
        mlp_size=512,
        vocab_size=_VOCABULARY,
    ),
}
_REAL: Final[dict[Family, ModelShape]] = {
    Family.QWEN3_MOE: preset("qwen3-30b-a3b"),
    Family.LLAMA: preset("llama-3.1-8b"),
}
_TYPES: Final = (
    (DType.FLOAT32, DType.FLOAT32),
    (DType.BFLOAT16, DType.BFLOAT16),
    (DType.BFLOAT16, DType.FLOAT8_E4M3),
)
_STEPS: Final = ((1, 5), (1, 0), (2, 3))
"""Requests and draft tokens: 6 rows, 1, and 8."""

_CONTEXT: Final = 33
"""Neither a power of two nor whole pages, with the new rows of any of the steps."""


def tiny_specs(backend: BackendSpec) -> list[LayerSpec]:
    """Small layers of every family that `backend` covers: types x rows x ranks."""
    return [spec for family in backend.covers for spec in _of_model(_TINY[family])]


def real_specs(families: Iterable[Family]) -> list[LayerSpec]:
    """As `tiny_specs`, of real models' sizes, which kernels may be made for."""
    return [spec for family in families for spec in _of_model(_REAL[family])]


def _of_model(model: ModelShape) -> list[LayerSpec]:
    shapes = [(*step, 1) for step in _STEPS]
    shapes.append((*_STEPS[0], 2))
    return [
        LayerSpec(
            model=model,
            dtype=dtype,
            weight_dtype=weight_dtype,
            requests=requests,
            draft_tokens=draft_tokens,
            context=_CONTEXT,
            tp=tp,
            shard_shaped=tp > 1,
        )
        for (dtype, weight_dtype), (requests, draft_tokens, tp) in product(
            _TYPES, shapes
        )
    ]


def label(spec: LayerSpec) -> str:
    """`spec` in a few words, to begin a sentence with."""
    shard = f", one rank of {spec.tp}" if spec.tp > 1 else ""
    return (
        f"{spec.model.name}, {spec.dtype} with {spec.weight_dtype} weights, "
        f"{spec.requests} x {spec.tokens_per_request} rows, "
        f"context {spec.context}{shard}"
    )
