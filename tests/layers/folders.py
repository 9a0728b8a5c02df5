"""Checkpoint folders that transformers writes, and fp8 ones made of them."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

Build = Callable[..., PreTrainedModel]

FP8 = {
    # as published with Qwen3-30B-A3B-FP8
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"],
    "quant_method": "fp8",
    "weight_block_size": [128, 128],
}

_SIZES = {
    "vocab_size": 32,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "attn_implementation": "eager",
}


def moe(width: int = 24, **sizes: int) -> PreTrainedModel:
    """A small random Qwen3-MoE, its experts `width` wide."""
    config = Qwen3MoeConfig(
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=width,
        norm_topk_prob=True,
        **(_SIZES | sizes),
    )
    return _drawn(Qwen3MoeForCausalLM(config))


def dense(width: int = 80, **sizes: int) -> PreTrainedModel:
    """A small random Llama with the frequency scaling of 3.1, its MLP `width` wide."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    config = LlamaConfig(
        intermediate_size=width, rope_parameters=rope, **(_SIZES | sizes)
    )
    return _drawn(LlamaForCausalLM(config))


def _drawn(model: PreTrainedModel) -> PreTrainedModel:
    """`model` with weights that all matter: norms not 1, matrices not small."""
    torch.manual_seed(0)
    for weight in model.parameters():
        if weight.dim() == 1:
            torch.nn.init.uniform_(weight, 0.5, 1.5)
        else:
            torch.nn.init.normal_(weight, std=weight.shape[-1] ** -0.5)
    return model


def reloaded(folder: Path, **options: object) -> PreTrainedModel:
    """The model in a folder as transformers reads it, in float32."""
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", **options
    )


def decoder_output(model: PreTrainedModel, layer: int, hidden: Tensor) -> Tensor:
    """What a decoder layer of transformers makes of the first rows of a request."""
    rows, decoder = len(hidden), model.model
    positions = torch.arange(rows)[None]
    with torch.no_grad():
        output: Tensor = decoder.layers[layer](
            hidden[None],
            attention_mask=torch.full((1, 1, rows, rows), -torch.inf).triu(1),
            position_ids=positions,
            position_embeddings=decoder.rotary_emb(hidden[None], positions),
        )[0]
    return output


def write_fp8(folder: Path, model: PreTrainedModel) -> dict[str, Tensor]:
    """Write `model` with its projections in fp8, as published; all that is in the file.

    The scales are bfloat16, as Qwen's, and one random multiple above what a block
    needs, so that quantising the values again would not find them.
    """
    model.save_pretrained(folder)
    path = folder / "model.safetensors"
    tensors: dict[str, Tensor] = {}
    for name, tensor in load_file(path).items():
        tensors[name] = tensor
        if name.endswith("_proj.weight"):
            rows, cols = (-(-length // 128) for length in tensor.shape)
            scale = (torch.rand(rows, cols) + 1).bfloat16() * 1e-3
            whole = block_values(scale, tensor)
            tensors[name] = (tensor / whole).to(torch.float8_e4m3fn)
            tensors[f"{name}_scale_inv"] = scale
    save_file(tensors, path, metadata={"format": "pt"})
    edit_config(folder, quantization_config=FP8)
    return tensors


def block_values(scale: Tensor, matrix: Tensor) -> Tensor:
    """The scale of every element of `matrix`, in float32."""
    each = torch.kron(scale.float(), torch.ones(128, 128))
    return each[: matrix.shape[0], : matrix.shape[1]]


def dequantised(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """What is in an fp8 file, in float32 and without scales."""
    return {
        name: tensor.float() * block_values(tensors[f"{name}_scale_inv"], tensor)
        if f"{name}_scale_inv" in tensors
        else tensor.float()
        for name, tensor in tensors.items()
        if not name.endswith("_scale_inv")
    }


def edit_config(folder: Path, **changes: object) -> None:
    """Change keys of a folder's config."""
    path = folder / "config.json"
    config = json.loads(path.read_bytes()) | changes
    path.write_text(json.dumps(config), encoding="utf-8")


def edit_tensors(folder: Path, changes: Mapping[str, Tensor | None]) -> None:
    """Replace tensors in a folder's only file, or drop those that are None."""
    path = folder / "model.safetensors"
    tensors: dict[str, Tensor | None] = {**load_file(path), **changes}
    kept = {name: tensor for name, tensor in tensors.items() if tensor is not None}
    save_file(kept, path)
