"""Model shapes by name, so that no checkpoint is needed to measure a layer."""

import difflib
from typing import Final

from layerscope.errors import InputError
from layerscope.layers.spec import Family, ModelShape, RopeScaling

_PRESETS: Final = (
    ModelShape(  # huggingface.co/Qwen/Qwen3-30B-A3B, config.json
        name="qwen3-30b-a3b",
        family=Family.QWEN3_MOE,
        layers=48,
        hidden_size=2048,
        query_heads=32,
        kv_heads=4,
        head_dim=128,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        experts=128,
        experts_per_token=8,
        expert_size=768,
        normalize_top_k=True,
        vocab_size=151936,
    ),
    ModelShape(  # huggingface.co/meta-llama/Llama-3.1-8B, config.json
        name="llama-3.1-8b",
        family=Family.LLAMA,
        layers=32,
        hidden_size=4096,
        query_heads=32,
        kv_heads=8,
        head_dim=128,
        rms_norm_eps=1e-5,
        rope_theta=5e5,
        rope_scaling=RopeScaling(
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=8192,
        ),
        mlp_size=14336,
        vocab_size=128256,
    ),
    ModelShape(  # no real model: small enough for a laptop's CPU
        name="tiny-moe",
        family=Family.QWEN3_MOE,
        layers=4,
        hidden_size=256,
        query_heads=8,
        kv_heads=2,
        head_dim=64,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        experts=16,
        experts_per_token=4,
        expert_size=128,
        normalize_top_k=True,
        vocab_size=4096,
    ),
)

PRESETS: Final[dict[str, ModelShape]] = {model.name: model for model in _PRESETS}


def preset(name: str) -> ModelShape:
    """The model shape called `name`.

    Raises:
        InputError: no preset has that name; lists them and the closest one.
    """
    if name in PRESETS:
        return PRESETS[name]
    close = difflib.get_close_matches(name, PRESETS, n=1)
    hint = f"did you mean {close[0]}? " if close else ""
    msg = f"no preset is called {name!r}; {hint}presets: {', '.join(PRESETS)}"
    raise InputError(msg)
