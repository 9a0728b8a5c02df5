from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import FineGrainedFP8Config
from transformers.quantizers import quantizer_finegrained_fp8

from layerscope.errors import InputError
from layerscope.layers.checkpoint import StoredLayer, load_layer, model_from_folder
from layerscope.layers.problem import ProblemOptions, make_problem
from layerscope.layers.reference import reference_output
from layerscope.layers.spec import DType, LayerSpec
from layerscope.layers.weights import BlockScaled, Weights, matrix, quantise, shard
from tests.layers.folders import (
    Build,
    decoder_output,
    dense,
    dequantised,
    edit_tensors,
    moe,
    reloaded,
    write_fp8,
)

ALIGNED = {"width": 512, "hidden_size": 256, "head_dim": 128}
"""Heads and widths that 2 and 4 ranks cut between blocks."""

RAGGED = {"width": 192, "hidden_size": 200, "head_dim": 64}
"""Gate ends within a block, the last block of a row is ragged, and cuts go anywhere."""

BOTH = pytest.mark.parametrize("build", [moe, dense])
GATE_UP = ("gate", "up")
LAYER = "model.layers.1."
ATTENTION = f"{LAYER}self_attn."


def loaded(folder: Path) -> StoredLayer:
    """Layer 1 of the folder."""
    stored = load_layer(folder, model_from_folder(folder), 1)
    assert stored is not None
    return stored


def spec_of(folder: Path, tp: int = 1, weight_dtype: str = "float8_e4m3") -> LayerSpec:
    """Seven first rows of a request, activations in float32."""
    return LayerSpec(
        model=model_from_folder(folder),
        layer=1,
        draft_tokens=6,
        context=0,
        dtype=DType.FLOAT32,
        weight_dtype=DType(weight_dtype),
        tp=tp,
        shard_shaped=tp > 1,
    )


def sliced(tensors: dict[str, Tensor], tp: int, rank: int) -> dict[str, Tensor]:
    """A rank's matrices, cut by hand out of tensors under their published names.

    Works on scales as on values: all is counted in parts of a dimension.
    """

    def rows(name: str, parts: int, part: int) -> Tensor:
        return tensors[name].chunk(parts)[part]

    kv_ranks, kv_rank = min(tp, 2), rank * min(tp, 2) // tp
    cut = {
        "qkv": torch.cat(
            [
                rows(f"{ATTENTION}q_proj.weight", tp, rank),
                rows(f"{ATTENTION}k_proj.weight", kv_ranks, kv_rank),
                rows(f"{ATTENTION}v_proj.weight", kv_ranks, kv_rank),
            ]
        ),
        "o": tensors[f"{ATTENTION}o_proj.weight"].chunk(tp, 1)[rank],
    }
    mlps = [f"{LAYER}mlp."]
    if f"{LAYER}mlp.gate_proj.weight" not in tensors:
        mlps = [f"{LAYER}mlp.experts.{expert}." for expert in range(4)]
    pairs = [
        torch.cat([rows(f"{mlp}{name}_proj.weight", tp, rank) for name in GATE_UP])
        for mlp in mlps
    ]
    downs = [tensors[f"{mlp}down_proj.weight"].chunk(tp, 1)[rank] for mlp in mlps]
    stacked = {"gate_up": torch.stack(pairs), "down": torch.stack(downs)}
    return cut | {k: t if len(mlps) > 1 else t[0] for k, t in stacked.items()}


def scales_of(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The scales of a file in float32, under the names of what they scale."""
    suffix = "_scale_inv"
    return {
        name.removesuffix(suffix): tensor.float()
        for name, tensor in tensors.items()
        if name.endswith(suffix)
    }


def kept(weights: Weights, name: str, data: Tensor, scale: Tensor) -> bool:
    """Whether a matrix has exactly these bytes and scales."""
    weight = weights[name]
    assert isinstance(weight, BlockScaled)
    return torch.equal(
        weight.data.view(torch.uint8), data.view(torch.uint8)
    ) and torch.equal(weight.scale, scale)


@pytest.mark.parametrize("tp", [1, 2, 4])
@BOTH
def test_blocks_are_kept_where_no_cut_goes_through_them(
    tmp_path: Path, build: Build, tp: int
) -> None:
    """The bytes and scales of every rank are those of the file."""
    tensors = write_fp8(tmp_path, build(**ALIGNED))
    stored, spec = loaded(tmp_path), spec_of(tmp_path, tp)
    for rank in range(tp):
        weights = shard(stored, spec, rank)
        data = sliced(tensors, tp, rank)
        scale = sliced(scales_of(tensors), tp, rank)
        assert all(kept(weights, name, data[name], scale[name]) for name in data)
        assert stored.origin(spec, rank) == f"read from {tmp_path}"


@pytest.mark.parametrize(
    ("tp", "changed"),
    [
        (1, ("gate_up",)),
        (2, ("qkv", "gate_up", "down")),
        (4, ("qkv", "o", "gate_up", "down")),
    ],
)
@BOTH
def test_blocks_that_a_cut_goes_through_are_made_anew(
    tmp_path: Path, build: Build, tp: int, changed: tuple[str, ...]
) -> None:
    """Such matrices are the published values, sliced and quantised again."""
    tensors = write_fp8(tmp_path, build(**RAGGED))
    stored, spec = loaded(tmp_path), spec_of(tmp_path, tp)
    truth = sliced(dequantised(tensors), tp, tp - 1)
    weights = shard(stored, spec, tp - 1)
    again = {name: quantise(values) for name, values in truth.items()}
    assert changed == tuple(
        name
        for name, expected in again.items()
        if kept(weights, name, expected.data, expected.scale)
    )
    assert all(
        torch.equal(matrix(weights[name], torch.float32), truth[name])
        for name in truth.keys() - set(changed)
    )
    notes = ", ".join(f"{name} quantised again" for name in changed)
    assert stored.origin(spec, tp - 1) == (
        f"read from {tmp_path} (float8_e4m3 there, {notes})"
    )


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("sizes", [ALIGNED, RAGGED])
@BOTH
def test_other_types_are_dequantised(
    tmp_path: Path, build: Build, sizes: dict[str, int], tp: int
) -> None:
    """Weights asked for in bf16 are the published values, rounded once."""
    tensors = write_fp8(tmp_path, build(**sizes))
    stored, spec = loaded(tmp_path), spec_of(tmp_path, tp, "bfloat16")
    weights = shard(stored, spec, tp - 1)
    for name, values in sliced(dequantised(tensors), tp, tp - 1).items():
        weight = weights[name]
        assert isinstance(weight, Tensor)
        assert torch.equal(weight, values.bfloat16()), name
    assert stored.origin(spec) == (
        f"read from {tmp_path} (float8_e4m3 there, converted)"
    )


def test_norms_and_router_are_not_quantised(tmp_path: Path) -> None:
    """What is published in full precision is in that of the activations."""
    tensors = write_fp8(tmp_path, moe(**ALIGNED))
    weights = shard(loaded(tmp_path), spec_of(tmp_path), 0)
    for name, published in {
        "input_norm": "input_layernorm",
        "q_norm": "self_attn.q_norm",
        "router": "mlp.gate",
    }.items():
        weight = weights[name]
        assert isinstance(weight, Tensor)
        assert torch.equal(weight, tensors[f"{LAYER}{published}.weight"])


def test_a_projection_that_was_not_converted(tmp_path: Path) -> None:
    """Beside fp8 a matrix may be plain, even one of those that are joined."""
    name = f"{ATTENTION}k_proj.weight"
    tensors = write_fp8(tmp_path, dense(**ALIGNED))
    plain = dequantised(tensors)[name].half()
    edit_tensors(tmp_path, {name: plain, f"{name}_scale_inv": None})
    stored, spec = loaded(tmp_path), spec_of(tmp_path)
    truth = sliced(dequantised(tensors) | {name: plain}, 1, 0)["qkv"]
    expected = quantise(truth)
    weights = shard(stored, spec, 0)
    assert kept(weights, "qkv", expected.data, expected.scale)
    assert kept(weights, "o", *published(tensors, f"{ATTENTION}o_proj.weight"))
    assert stored.origin(spec) == (
        f"read from {tmp_path} (float16 and float8_e4m3 there, converted)"
    )


def published(tensors: dict[str, Tensor], name: str) -> tuple[Tensor, Tensor]:
    """A matrix of the file and its scales."""
    return tensors[name], scales_of(tensors)[name]


@pytest.fixture
def _without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let transformers read and write fp8 where it could not compute with it."""
    monkeypatch.setattr(
        quantizer_finegrained_fp8.FineGrainedFP8HfQuantizer,
        "validate_environment",
        lambda *_, **__: None,
    )


@pytest.mark.usefixtures("_without_gpu")
@BOTH
def test_an_fp8_layer_equals_transformers(tmp_path: Path, build: Build) -> None:
    """The reference on published blocks is transformers on what it makes of them."""
    write_fp8(tmp_path, build(**ALIGNED))
    options = ProblemOptions(passes=1, steps=1, weights=loaded(tmp_path))
    problem = make_problem(spec_of(tmp_path), options)
    if problem.router_bias is not None:
        problem.router_bias.zero_()
    theirs = reloaded(
        tmp_path, quantization_config=FineGrainedFP8Config(dequantize=True)
    )
    expected = decoder_output(theirs, 1, problem.buffers[0].hidden)
    ours = reference_output(problem, 0)
    torch.testing.assert_close(ours, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("_without_gpu")
@pytest.mark.parametrize("apart", [True, False], ids=["one-by-one", "fused"])
@BOTH
def test_fp8_that_transformers_writes(
    tmp_path: Path, build: Build, *, apart: bool
) -> None:
    """A folder that it reads and saves again, experts fused or not, is the same."""
    tensors = write_fp8(tmp_path / "published", build(**ALIGNED))
    theirs = reloaded(tmp_path / "published")
    theirs.save_pretrained(tmp_path / "saved", save_original_format=apart)
    weights = shard(loaded(tmp_path / "saved"), spec_of(tmp_path / "saved"), 0)
    data, scale = sliced(tensors, 1, 0), sliced(scales_of(tensors), 1, 0)
    assert all(kept(weights, name, data[name], scale[name]) for name in data)


@pytest.mark.parametrize("tp", [1, 2])
@BOTH
def test_every_pass_has_its_own_blocks(tmp_path: Path, build: Build, tp: int) -> None:
    """Blocks are copied for each pass, and laid out as random weights are."""
    write_fp8(tmp_path, build(**RAGGED))
    spec, stored = spec_of(tmp_path, tp), loaded(tmp_path)
    problem = make_problem(spec, ProblemOptions(passes=2, steps=1, weights=stored))
    drawn = make_problem(spec, ProblemOptions(passes=2, steps=1))
    pointers = set()
    for weights, others in zip(problem.weights, drawn.weights, strict=True):
        for name, weight in weights.items():
            parts, expected = tensors_of(weight), tensors_of(others[name])
            for part, like in zip(parts, expected, strict=True):
                assert (part.shape, part.dtype) == (like.shape, like.dtype), name
                assert part.is_contiguous()
                pointers.add(part.untyped_storage().data_ptr())
    whole = [part for weight in stored.values() for part in tensors_of(weight)]
    pointers |= {part.untyped_storage().data_ptr() for part in whole}
    each = sum(len(tensors_of(weight)) for weight in problem.weights[0].values())
    assert len(pointers) == 2 * each + len(whole)


def tensors_of(weight: Tensor | BlockScaled) -> tuple[Tensor, ...]:
    """What a weight has in memory."""
    if isinstance(weight, BlockScaled):
        return weight.data, weight.scale
    return (weight,)


def refusal(folder: Path) -> str:
    """The one line with which layer 1 is refused, without folder and layer."""
    with pytest.raises(InputError) as caught:
        loaded(folder)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(f"{folder}/", "").replace(LAYER, "")


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (
            None,
            "has no tensor o_proj.weight_scale_inv; is the download complete?",
        ),
        (
            torch.ones(2, 2),
            "o_proj.weight_scale_inv is [2, 2], and by config.json must be [2, 4]",
        ),
        (
            torch.ones(2, 4).half(),
            "o_proj.weight_scale_inv is float16, and must be float32 or bfloat16",
        ),
    ],
)
def test_scales_that_cannot_be(
    tmp_path: Path, scale: Tensor | None, message: str
) -> None:
    """Scales that are missing, or of another shape or type, are named."""
    write_fp8(tmp_path, dense(**ALIGNED))
    edit_tensors(tmp_path, {f"{ATTENTION}o_proj.weight_scale_inv": scale})
    assert (
        refusal(tmp_path).replace("self_attn.", "") == f"model.safetensors: {message}"
    )


def test_a_norm_in_fp8_is_refused(tmp_path: Path) -> None:
    """Only matrices have blocks."""
    write_fp8(tmp_path, dense(**ALIGNED))
    norm = torch.ones(256).to(torch.float8_e4m3fn)
    edit_tensors(tmp_path, {f"{LAYER}input_layernorm.weight": norm})
    assert refusal(tmp_path) == (
        "model.safetensors: input_layernorm.weight is float8_e4m3, "
        "which is not supported"
    )


def test_fused_experts_that_share_blocks_are_refused(tmp_path: Path) -> None:
    """Where gate ends within a block, its scales could mean one thing or another."""
    write_fp8(tmp_path, moe(**(ALIGNED | {"width": 100})))
    experts = f"{LAYER}mlp.experts."
    fused = torch.zeros(4, 200, 256).to(torch.float8_e4m3fn)
    changes = {f"{experts}gate_up_proj": fused}
    changes[f"{experts}gate_up_proj_scale_inv"] = torch.ones(4, 2, 2)
    edit_tensors(tmp_path, changes)
    assert refusal(tmp_path) == (
        "model.safetensors: mlp.experts.gate_up_proj has scales that gate and up "
        "share: each has 100 rows; store the experts one by one"
    )
