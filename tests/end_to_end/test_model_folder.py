"""``--model DIR``: one layer of a checkpoint, from its files to its report."""

import json
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from layerscope.cli.main import main
from layerscope.layers.spec import DType, LayerSpec
from layerscope.run import Run, load
from tests.layers.folders import (
    FP8,
    Build,
    dense,
    edit_config,
    edit_tensors,
    moe,
    write_fp8,
)

SMALL = (
    *("profile", "--device", "cpu", "--arms", "reference", "--context", "32"),
    *("--samples", "24", "--passes", "4", "--captures", "1", "--time-budget", "2"),
)
QUICK = ("--recorder", "none", "--no-draft")
LAYER = ("--model", "./folder", "--layer", "1")
BOTH = pytest.mark.parametrize("build", [moe, dense])
SCALE = "model.layers.1.self_attn.o_proj.weight_scale_inv"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """``folder`` in the working folder, to be written by a test."""
    monkeypatch.chdir(tmp_path)
    return Path("folder")


def profiled(*options: str) -> tuple[Run, LayerSpec]:
    """The run of layer 1 of ``./folder``, right in its numerics, and its spec."""
    assert main([*SMALL, *LAYER, *options, "-o", "run"]) == 0
    run = load(Path("run"))
    spec = run.header.study.spec
    assert isinstance(spec, LayerSpec)
    assert (run.header.status, spec.model.name, spec.layer) == ("complete", "folder", 1)
    assert run.header.numerics
    assert all(check.error <= check.bound for check in run.header.numerics)
    return run, spec


@pytest.mark.parametrize("shard_size", ["5GB", "20KB"])
@BOTH
def test_a_layer_is_profiled_from_its_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], build: Build, shard_size: str
) -> None:
    """Regions, numerics and origin are those of layer 1, whole or in shards."""
    build().save_pretrained(folder, max_shard_size=shard_size)
    run, spec = profiled()
    assert (spec.model.hidden_size, spec.model.vocab_size) == (48, 32)
    assert spec.weight_dtype is DType.FLOAT32
    assert run.header.weights == "read from folder"
    regions = set(run.kernels["region"]) - {"other"}
    assert regions == {region.value for region in spec.regions}
    printed = capsys.readouterr().out
    assert printed.startswith("folder, layer 1\n")
    assert "read from folder" in printed


@BOTH
def test_weights_are_those_of_the_layer(folder: Path, build: Build) -> None:
    """A layer full of NaN fails its numerics, and its neighbour does not."""
    build().save_pretrained(folder)
    name = "model.layers.0.self_attn.o_proj.weight"
    edit_tensors(folder, {name: torch.full((48, 64), torch.nan)})
    profiled(*QUICK)
    assert main([*SMALL, *LAYER, *QUICK, "--layer", "0", "-o", "other"]) == 1


@BOTH
def test_an_fp8_folder_is_measured_as_published(folder: Path, build: Build) -> None:
    """Without --weights the weights are the blocks of the folder."""
    write_fp8(folder, build(width=128, hidden_size=128, head_dim=64))
    run, spec = profiled(*QUICK)
    assert (spec.dtype, spec.weight_dtype) == (DType.FLOAT32, DType.FLOAT8_E4M3)
    assert run.header.weights == "read from folder"


def test_an_fp8_folder_can_be_dequantised(folder: Path) -> None:
    """With --weights bfloat16 they are that, and the header says from what."""
    write_fp8(folder, dense(width=128, hidden_size=128, head_dim=64))
    run, spec = profiled(*QUICK, "--weights", "bfloat16")
    assert spec.weight_dtype is DType.BFLOAT16
    assert run.header.weights == "read from folder (float8_e4m3 there, converted)"


def test_a_half_precision_folder_is_converted(folder: Path) -> None:
    """Weights follow the activations, and the header says what they were."""
    dense().half().save_pretrained(folder)
    run, spec = profiled(*QUICK)
    assert spec.weight_dtype is DType.FLOAT32
    assert run.header.weights == "read from folder (float16 there, converted)"


@BOTH
def test_a_folder_without_weights(folder: Path, build: Build) -> None:
    """A config alone is measured with random weights, and a warning says so."""
    build().config.save_pretrained(folder)
    header = profiled(*QUICK)[0].header
    assert header.weights == "random, seed 0"
    told = "folder holds no safetensors: weights are random, seed 0"
    assert told in header.warnings


def test_an_fp8_config_without_weights(folder: Path) -> None:
    """Random weights are quantised where the config says that its own are."""
    dense().config.save_pretrained(folder)
    edit_config(folder, quantization_config=FP8)
    run, spec = profiled(*QUICK)
    assert run.header.weights == "random, seed 0"
    assert spec.weight_dtype is DType.FLOAT8_E4M3


def refusal(capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The one line with which ``./folder`` is refused, and nothing is left."""
    before = {path.name for path in Path().iterdir()}
    capsys.readouterr()
    assert main([*SMALL, *LAYER, "-o", "refused", *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert {path.name for path in Path().iterdir()} == before
    (line,) = [each for each in err.splitlines() if each.startswith("error: ")]
    assert err.endswith(f"{line}\n")
    return line.removeprefix("error: ")


def test_a_layer_out_of_range(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder and the layers it has are named."""
    dense().save_pretrained(folder)
    assert refusal(capsys, "--layer", "2") == (
        "layer 2 is out of range: folder has layers 0 to 1"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"model_type": "deepseek_v3"},
            (
                "model_type 'deepseek_v3' is not supported (latent attention, shared "
                "experts, sigmoid routing in groups); supported: qwen3_moe, llama"
            ),
        ),
        ({"attention_bias": True}, "not supported: attention_bias True"),
        (
            {"quantization_config": {"quant_method": "awq"}},
            "not supported: quantization_config of method 'awq'",
        ),
        (
            {"quantization_config": FP8 | {"weight_block_size": [64, 64]}},
            "not supported: weight_block_size [64, 64] in quantization_config",
        ),
    ],
)
def test_what_no_family_computes(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, object],
    message: str,
) -> None:
    """What differs is named, with the file that says it."""
    dense().save_pretrained(folder)
    edit_config(folder, **changes)
    assert refusal(capsys) == f"folder/config.json: {message}"


def test_a_missing_shard(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The shard and the index that names it are named; others may be missing."""
    moe().save_pretrained(folder, max_shard_size="20KB")
    index = "model.safetensors.index.json"
    shards = json.loads((folder / index).read_bytes())["weight_map"]
    (folder / shards["lm_head.weight"]).unlink()
    needed = shards["model.layers.1.self_attn.o_proj.weight"]
    assert shards["lm_head.weight"] != needed
    profiled(*QUICK)
    (folder / needed).unlink()
    assert refusal(capsys) == (
        f"folder/{needed}: no such file, but {index} names it; "
        "is the download complete?"
    )


def test_a_truncated_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A download that broke off is named."""
    dense().save_pretrained(folder)
    weights = folder / "model.safetensors"
    os.truncate(weights, weights.stat().st_size - 1)
    message = refusal(capsys)
    assert message.startswith(f"{weights}: is truncated or malformed (")
    assert message.endswith("); download it again")


@pytest.mark.parametrize(
    ("scale", "message"),
    [
        (None, f"has no tensor {SCALE}; is the download complete?"),
        (
            torch.ones(1, 1),
            f"{SCALE} is [1, 1], and by config.json must be [1, 2]",
        ),
    ],
)
def test_scales_that_cannot_be(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    scale: Tensor | None,
    message: str,
) -> None:
    """Scales that are missing, or do not fit their matrix, are named."""
    write_fp8(folder, dense(width=128, hidden_size=128, head_dim=64))
    edit_tensors(folder, {SCALE: scale})
    assert refusal(capsys) == f"folder/model.safetensors: {message}"
