import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from layerscope.errors import InputError
from layerscope.layers.checkpoint import load_layer, model_from_folder
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.reference import reference_output
from layerscope.layers.spec import DType, LayerSpec

SIZES = {
    "vocab_size": 32,
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "attn_implementation": "eager",
}


def moe() -> PreTrainedModel:
    """A small Qwen3-MoE."""
    return Qwen3MoeForCausalLM(
        Qwen3MoeConfig(
            num_experts=4,
            num_experts_per_tok=2,
            moe_intermediate_size=24,
            norm_topk_prob=True,
            **SIZES,
        )
    )


def dense() -> PreTrainedModel:
    """A small Llama with the frequency scaling of 3.1."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 5e5,
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }
    return LlamaForCausalLM(
        LlamaConfig(intermediate_size=80, rope_parameters=rope, **SIZES)
    )


def loaded(folder: Path, layer: int) -> Problem:
    """A problem of `layer` of the checkpoint, with nothing in its KV cache yet."""
    model = model_from_folder(folder)
    spec = LayerSpec(
        model=model,
        layer=layer,
        draft_tokens=6,
        context=0,
        dtype=DType.FLOAT32,
        weight_dtype=DType.FLOAT32,
    )
    weights = load_layer(folder, model, layer)
    assert weights is not None
    options = ProblemOptions(passes=1, steps=1, weights=weights)
    problem = make_problem(spec, options)
    if problem.router_bias is not None:
        problem.router_bias.zero_()
    return problem


@pytest.mark.parametrize("shard_size", ["5GB", "20KB"])
@pytest.mark.parametrize("build", [moe, dense])
def test_round_trip(
    tmp_path: Path, build: type[PreTrainedModel], shard_size: str
) -> None:
    """What transformers saves, whole or in shards, computes what its layer computes."""
    torch.manual_seed(0)
    theirs = build()
    theirs.save_pretrained(tmp_path, max_shard_size=shard_size)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard_size != "5GB")
    for layer in range(2):
        problem = loaded(tmp_path, layer)
        hidden, decoder = problem.buffers[0].hidden[None], theirs.model
        positions = torch.arange(7)[None]
        with torch.no_grad():
            expected = decoder.layers[layer](
                hidden,
                attention_mask=torch.full((1, 1, 7, 7), -torch.inf).triu(1),
                position_ids=positions,
                position_embeddings=decoder.rotary_emb(hidden, positions),
            )
        torch.testing.assert_close(
            reference_output(problem, 0), expected[0], rtol=1e-5, atol=1e-6
        )


def test_fused_and_separate_experts_are_the_same(tmp_path: Path) -> None:
    """Experts in one tensor load as experts one by one do."""
    moe().save_pretrained(tmp_path)
    model = model_from_folder(tmp_path)
    separate = load_layer(tmp_path, model, 1)
    assert separate is not None
    path = tmp_path / "model.safetensors"
    kept = {
        name: tensor
        for name, tensor in load_file(path).items()
        if ".experts." not in name
    }
    experts = "model.layers.1.mlp.experts"
    kept[f"{experts}.gate_up_proj"] = separate["gate_up"]
    kept[f"{experts}.down_proj"] = separate["down"]
    save_file(kept, path)
    fused = load_layer(tmp_path, model, 1)
    assert fused is not None
    assert fused.keys() == separate.keys()
    assert all(torch.equal(fused[name], separate[name]) for name in separate)


def test_a_folder_without_weights(tmp_path: Path) -> None:
    """A config alone is a shape to measure with random weights."""
    dense().config.save_pretrained(tmp_path)
    assert load_layer(tmp_path, model_from_folder(tmp_path), 0) is None


@pytest.fixture
def sharded(tmp_path: Path) -> Path:
    """A small Llama in several shards."""
    dense().save_pretrained(tmp_path, max_shard_size="20KB")
    return tmp_path


def refusal(folder: Path) -> str:
    """The one line with which the weights are refused, without the folder."""
    with pytest.raises(InputError) as caught:
        load_layer(folder, model_from_folder(folder), 0)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{folder}/", "")


def shard_of(folder: Path, tensor: str) -> Path:
    """The shard that holds `tensor`."""
    index = json.loads((folder / "model.safetensors.index.json").read_bytes())
    return folder / str(index["weight_map"][tensor])


O_PROJ = "model.layers.0.self_attn.o_proj.weight"


def test_a_missing_shard(sharded: Path) -> None:
    """A shard that the index names and that is not there is named."""
    shard = shard_of(sharded, O_PROJ)
    shard.unlink()
    assert refusal(sharded) == (
        f"{shard.name}: no such file, but model.safetensors.index.json names it; "
        "is the download complete?"
    )


@pytest.mark.parametrize("kept", [0, 4, 100, -10])
def test_a_truncated_shard(sharded: Path, kept: int) -> None:
    """A shard cut anywhere is reported as truncated, not as lacking a tensor."""
    shard = shard_of(sharded, O_PROJ)
    shard.write_bytes(shard.read_bytes()[:kept])
    message = refusal(sharded)
    assert message.startswith(f"{shard.name}: is truncated or malformed (")
    assert message.endswith("); download it again")


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weight_map": 3}'])
def test_a_malformed_index(sharded: Path, content: str) -> None:
    """An index that lists no shards is refused by its name."""
    (sharded / "model.safetensors.index.json").write_text(content, encoding="utf-8")
    message = refusal(sharded)
    assert message.startswith("model.safetensors.index.json: is not an index of shards")
    assert message.endswith("; download it again")


def test_a_tensor_that_the_index_lacks(sharded: Path) -> None:
    """A tensor in no shard is named, with the index."""
    path = sharded / "model.safetensors.index.json"
    index = json.loads(path.read_bytes())
    del index["weight_map"][O_PROJ]
    path.write_text(json.dumps(index), encoding="utf-8")
    assert refusal(sharded) == (
        f"model.safetensors.index.json: has no tensor {O_PROJ}; "
        "is the download complete?"
    )


def test_a_tensor_that_its_file_lacks(sharded: Path) -> None:
    """A tensor that the index promises and the shard lacks is named, with the shard."""
    shard = shard_of(sharded, O_PROJ)
    save_file({"other": torch.zeros(1)}, shard)
    message = refusal(sharded)
    assert message.startswith(f"{shard.name}: has no tensor model.layers.0.")


def test_a_tensor_of_another_shape(tmp_path: Path) -> None:
    """A tensor that contradicts the config is named with both shapes."""
    dense().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors[O_PROJ] = torch.zeros(48, 32)
    save_file(tensors, path)
    assert refusal(tmp_path) == (
        f"model.safetensors: {O_PROJ} is [48, 32], and by config.json must be [48, 64]"
    )


@pytest.mark.parametrize("name", ["/etc/model.safetensors", "../model.safetensors"])
def test_a_shard_outside_the_folder(sharded: Path, name: str) -> None:
    """An index cannot make the reader open files elsewhere."""
    index = sharded / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {O_PROJ: name}}))
    assert refusal(sharded) == (
        f"model.safetensors.index.json: names {name}, which is outside its folder"
    )


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn])
def test_a_tensor_that_needs_scales(tmp_path: Path, dtype: torch.dtype) -> None:
    """Weights that were quantised by someone else are refused, fp8 like integers."""
    dense().save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    tensors[O_PROJ] = torch.zeros(48, 64).to(dtype)
    save_file(tensors, path)
    assert refusal(tmp_path) == (
        f"model.safetensors: {O_PROJ} is {dtype}; quantised weights cannot be read"
    )
