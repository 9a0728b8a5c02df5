"""How layers of families that are not supported differ from those that are."""

from collections.abc import Mapping
from typing import Final

_PARALLEL: Final = "attention and MLP beside each other, LayerNorm"
_PARTIAL: Final = "RoPE on part of a head"
_POST_NORMS: Final = "norms after attention and MLP instead of before"
_LATENT: Final = "latent attention, shared experts"
_LINEAR: Final = "linear attention in most layers"
_WINDOWS: Final = "sliding-window attention in some layers"
_QKV_BIASES: Final = "biases on q, k and v"

_DIFFERENCES: Final[Mapping[str, str]] = {
    "cohere": _PARALLEL,
    "cohere2": f"{_PARALLEL}, {_WINDOWS}, no RoPE in the others",
    "deepseek_v2": _LATENT,
    "deepseek_v3": f"{_LATENT}, sigmoid routing in groups",
    "deepseek_v32": f"{_LATENT}, sparse attention, sigmoid routing in groups",
    "exaone4": f"{_POST_NORMS}, a dense MLP behind QK-norm",
    "falcon": f"{_PARALLEL}, an MLP without gate",
    "gemma": "norms by 1 + weight, GELU in the MLP",
    "gemma2": f"norms by 1 + weight, four a layer, capped scores, {_WINDOWS}",
    "gemma3": f"norms by 1 + weight, four a layer, QK-norm, {_WINDOWS}",
    "gemma3_text": f"norms by 1 + weight, four a layer, QK-norm, {_WINDOWS}",
    "glm4": f"norms before and after attention and MLP, {_PARTIAL}",
    "glm4_moe": f"{_PARTIAL}, sigmoid routing, shared experts",
    "gpt2": "learned positions, LayerNorm, biases, an MLP without gate",
    "gpt_neox": f"{_PARALLEL}, biases, {_PARTIAL}",
    "gpt_oss": f"attention sinks, biases, clamped experts, {_WINDOWS}",
    "granite": "residuals and scores with factors",
    "granitemoe": "residuals and scores with factors, experts without QK-norm",
    "kimi_k2": f"{_LATENT}, sigmoid routing in groups",
    "llama4": "chunked attention, no RoPE in some layers, a shared expert",
    "llama4_text": "chunked attention, no RoPE in some layers, a shared expert",
    "minimax_m2": f"QK-norm over all heads at once, {_PARTIAL}, sigmoid routing",
    "ministral": _WINDOWS,
    "mistral": (
        "sliding-window attention; where its sliding_window is null it computes what "
        "llama does, and model_type may say so"
    ),
    "mixtral": "experts without QK-norm, and other names of tensors",
    "mllama": "attention to images in some layers",
    "nemotron": f"LayerNorm by 1 + weight, squared ReLU without gate, {_PARTIAL}",
    "olmo": "LayerNorm without weights",
    "olmo2": f"{_POST_NORMS}, QK-norm over all heads at once",
    "olmo3": f"{_POST_NORMS}, QK-norm over all heads at once, {_WINDOWS}",
    "olmoe": "QK-norm over all heads at once",
    "phi": f"{_PARALLEL}, biases, {_PARTIAL}, an MLP without gate",
    "phi3": "q, k, v in one matrix, gate and up in another",
    "phimoe": "LayerNorm, biases, routing by sparse mixer",
    "qwen2": _QKV_BIASES,
    "qwen2_moe": f"{_QKV_BIASES}, no QK-norm, a shared expert",
    "qwen3": "a dense MLP behind QK-norm",
    "qwen3_5": f"{_LINEAR}, gated attention in the others",
    "qwen3_next": f"{_LINEAR}, gated attention in the others, a shared expert",
    "seed_oss": _QKV_BIASES,
    "smollm3": "no RoPE in some layers",
    "stablelm": f"LayerNorm, {_PARTIAL}",
    "starcoder2": "LayerNorm, biases, an MLP without gate",
}
"""By ``model_type``, as `transformers` computes them; what differs in a layer alone."""


def difference(model_type: str, config: Mapping[str, object]) -> str:
    """What a layer of `model_type` has that no family here computes; empty if unknown.

    Args:
        model_type: as ``config.json`` says it.
        config: all of the file.
    """
    known = _DIFFERENCES.get(model_type, "")
    if not known and isinstance(config.get("text_config"), dict):
        return "its language model is within a larger one, described in text_config"
    return known
