import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from layerscope.errors import InputError
from layerscope.layers.checkpoint import StoredLayer, load_layer, model_from_folder
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.reference import reference_output
from layerscope.layers.spec import DType, LayerSpec
from tests.layers.folders import (
    Build,
    decoder_output,
    dense,
    edit_tensors,
    moe,
    reloaded,
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


def tensors_of(layer: StoredLayer) -> dict[str, Tensor]:
    """The weights of a layer of which none is block-scaled."""
    return {
        name: weight for name, weight in layer.items() if isinstance(weight, Tensor)
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shard_size", ["5GB", "20KB"])
@pytest.mark.parametrize("build", [moe, dense])
def test_round_trip(
    tmp_path: Path, build: Build, shard_size: str, dtype: torch.dtype
) -> None:
    """What transformers saves, whole or in shards, computes what its layer computes."""
    build().to(dtype).save_pretrained(tmp_path, max_shard_size=shard_size)
    theirs = reloaded(tmp_path)
    assert (tmp_path / "model.safetensors.index.json").exists() == (shard_size != "5GB")
    for layer in range(2):
        problem = loaded(tmp_path, layer)
        expected = decoder_output(theirs, layer, problem.buffers[0].hidden)
        ours = reference_output(problem, 0)
        torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-6)


def test_layers_differ(tmp_path: Path) -> None:
    """Every tensor of a layer is its own, and is in the type of the file."""
    moe().half().save_pretrained(tmp_path)
    first, second = (
        load_layer(tmp_path, model_from_folder(tmp_path), layer) for layer in range(2)
    )
    assert first is not None
    assert second is not None
    assert len(tensors_of(first)) == len(first) == 9
    others = tensors_of(second)
    for name, tensor in tensors_of(first).items():
        assert tensor.dtype is torch.float16
        assert not torch.equal(tensor, others[name]), name


@pytest.mark.parametrize(
    ("held", "weight_dtype", "note"),
    [
        ("float32", DType.FLOAT32, ""),
        ("bfloat16", DType.BFLOAT16, ""),
        ("float16", DType.FLOAT32, " (float16 there, converted)"),
        ("float32", DType.BFLOAT16, " (float32 there, converted)"),
        ("bfloat16", DType.FLOAT8_E4M3, " (bfloat16 there, converted)"),
    ],
)
def test_the_origin_says_what_was_converted(
    tmp_path: Path, held: str, weight_dtype: DType, note: str
) -> None:
    """The types of matrices are named where the layer stores them in another."""
    dense().to(getattr(torch, held)).save_pretrained(tmp_path)
    model = model_from_folder(tmp_path)
    weights = load_layer(tmp_path, model, 0)
    assert weights is not None
    spec = LayerSpec(model=model, weight_dtype=weight_dtype)
    assert weights.origin(spec) == f"read from {tmp_path}{note}"


def test_the_origin_names_every_type(tmp_path: Path) -> None:
    """Parts of one matrix may differ; norms are not matrices."""
    dense().save_pretrained(tmp_path)
    layer = "model.layers.0"
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    halves = (f"{layer}.self_attn.k_proj.weight", f"{layer}.input_layernorm.weight")
    edit_tensors(tmp_path, {name: tensors[name].half() for name in halves})
    model = model_from_folder(tmp_path)
    weights = load_layer(tmp_path, model, 0)
    assert weights is not None
    assert weights.origin(LayerSpec(model=model)) == (
        f"read from {tmp_path} (float16 and float32 there, converted)"
    )
    qkv = weights["qkv"]
    assert isinstance(qkv, Tensor)
    assert torch.equal(qkv[64:96], tensors[halves[0]].half().float())


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
    kept[f"{experts}.gate_up_proj"] = tensors_of(separate)["gate_up"]
    kept[f"{experts}.down_proj"] = tensors_of(separate)["down"]
    save_file(kept, path)
    fused = load_layer(tmp_path, model, 1)
    assert fused is not None
    assert fused.keys() == separate.keys()
    same = tensors_of(fused)
    assert all(torch.equal(same[k], each) for k, each in tensors_of(separate).items())


def test_a_folder_without_weights(tmp_path: Path) -> None:
    """A config alone is a shape to measure with random weights."""
    dense().config.save_pretrained(tmp_path)
    assert load_layer(tmp_path, model_from_folder(tmp_path), 0) is None


@pytest.mark.parametrize(
    ("names", "has"),
    [
        (["weights.safetensors"], "weights.safetensors"),
        (
            ["model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors"],
            "model-00001-of-00002.safetensors and 1 more",
        ),
    ],
)
def test_weights_that_nothing_lists(tmp_path: Path, names: list[str], has: str) -> None:
    """Random weights in their place would be taken for the model's."""
    dense().config.save_pretrained(tmp_path)
    for name in names:
        save_file({O_PROJ: torch.zeros(48, 64)}, tmp_path / name)
    with pytest.raises(InputError) as caught:
        load_layer(tmp_path, model_from_folder(tmp_path), 0)
    assert str(caught.value) == (
        f"{tmp_path}: has {has}, but neither model.safetensors nor "
        "model.safetensors.index.json, which says what is in which file; is the "
        "download complete?"
    )


@pytest.mark.parametrize("shard_size", ["5GB", "20KB"])
@pytest.mark.parametrize("build", [moe, dense])
def test_a_model_without_its_head_is_read_too(
    tmp_path: Path, build: Build, shard_size: str
) -> None:
    """Its layers are called ``layers.0.…``, and are the same."""
    whole = build()
    for name, model in (("whole", whole), ("bare", whole.model)):
        model.save_pretrained(tmp_path / name, max_shard_size=shard_size)
    model = model_from_folder(tmp_path / "bare")
    bare, full = (load_layer(tmp_path / name, model, 1) for name in ("bare", "whole"))
    assert bare is not None
    assert full is not None
    same = tensors_of(full)
    assert bare.keys() == full.keys()
    assert all(torch.equal(same[name], each) for name, each in tensors_of(bare).items())


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
    edit_tensors(tmp_path, {O_PROJ: torch.zeros(48, 32)})
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


@pytest.mark.parametrize("dtype", ["int8", "float8_e5m2"])
def test_a_type_that_is_not_supported(tmp_path: Path, dtype: str) -> None:
    """Weights that were quantised in another way are refused by their type."""
    dense().save_pretrained(tmp_path)
    zeros = torch.zeros(48, 64).to(getattr(torch, dtype))
    edit_tensors(tmp_path, {O_PROJ: zeros})
    assert refusal(tmp_path) == (
        f"model.safetensors: {O_PROJ} is {dtype}, which is not supported"
    )
