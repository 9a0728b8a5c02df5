import json
from pathlib import Path

import pytest

from layerscope.errors import InputError
from layerscope.layers.model_config import model_from_folder, weights_in_folder
from layerscope.layers.spec import DType, Family, ModelShape, RopeScaling

QWEN = {
    # as published with Qwen3-30B-A3B
    "model_type": "qwen3_moe",
    "attention_bias": False,
    "decoder_sparse_step": 1,
    "head_dim": 128,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "mlp_only_layers": [],
    "moe_intermediate_size": 768,
    "norm_topk_prob": True,
    "num_attention_heads": 32,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_hidden_layers": 48,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_scaling": None,
    "rope_theta": 1000000.0,
    "sliding_window": None,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
LLAMA = {
    # as published with Llama-3.1-8B, which leaves head_dim to be derived
    "model_type": "llama",
    "attention_bias": False,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "mlp_bias": False,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "vocab_size": 128256,
}


def written(folder: Path, config: object) -> Path:
    """A folder ``model`` with `config`."""
    path = folder / "model"
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return path


def refusal(path: Path) -> str:
    """The one line with which a folder is refused, its path shown as MODEL."""
    with pytest.raises(InputError) as caught:
        model_from_folder(path)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(path), "MODEL")


def test_a_published_moe_config(tmp_path: Path) -> None:
    """Qwen3-30B-A3B's config is read as published."""
    assert model_from_folder(written(tmp_path, QWEN)) == ModelShape(
        name="model",
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
    )


def test_a_published_dense_config(tmp_path: Path) -> None:
    """Llama-3.1-8B's config is read as published."""
    assert model_from_folder(written(tmp_path, LLAMA)) == ModelShape(
        name="model",
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
    )


def test_absent_keys_mean_what_transformers_takes_them_for(tmp_path: Path) -> None:
    """KV heads default to all heads, the base to 10,000, top-k to unnormalised."""
    dropped = ("num_key_value_heads", "rope_theta", "rope_scaling", "rms_norm_eps")
    config = {key: value for key, value in LLAMA.items() if key not in dropped}
    llama = model_from_folder(written(tmp_path, config))
    assert (llama.kv_heads, llama.rope_theta, llama.rms_norm_eps) == (32, 1e4, 1e-6)
    (tmp_path / "moe").mkdir()
    moe = {key: value for key, value in QWEN.items() if key != "norm_topk_prob"}
    assert not model_from_folder(written(tmp_path / "moe", moe)).normalize_top_k


def test_a_config_need_not_give_the_vocabulary(tmp_path: Path) -> None:
    """No layer needs it: 0 stands for a size that is not known."""
    config = {key: value for key, value in LLAMA.items() if key != "vocab_size"}
    assert model_from_folder(written(tmp_path, config)).vocab_size == 0


@pytest.mark.parametrize(
    ("config", "changes", "expected"),
    [
        (QWEN, {"attention_bias": True}, "attention_bias True"),
        (QWEN, {"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        (
            QWEN,
            {"use_sliding_window": True, "sliding_window": 4096},
            "use_sliding_window True",
        ),
        (LLAMA, {"sliding_window": 4096}, "sliding_window 4096"),
        (LLAMA, {"mlp_bias": True}, "mlp_bias True"),
        (LLAMA, {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        (QWEN, {"decoder_sparse_step": 2}, "decoder_sparse_step 2"),
        (QWEN, {"mlp_only_layers": [0]}, "mlp_only_layers [0]"),
        (
            QWEN,
            {"shared_expert_intermediate_size": 512},
            "shared_expert_intermediate_size 512",
        ),
        (
            LLAMA,
            {"quantization_config": {"bits": 4}, "attention_bias": True},
            "attention_bias True, quantization_config of method None",
        ),
        (LLAMA, {"rope_scaling": {"type": "yarn"}}, "rope_scaling of type 'yarn'"),
        (
            LLAMA,
            {"rope_parameters": {"partial_rotary_factor": 0.5}},
            "partial_rotary_factor in rope_parameters",
        ),
    ],
)
def test_features_that_differ_are_refused_by_name(
    tmp_path: Path,
    config: dict[str, object],
    changes: dict[str, object],
    expected: str,
) -> None:
    """A layer that would compute something else is not measured as if it did not."""
    path = written(tmp_path, config | changes)
    assert refusal(path) == f"MODEL/config.json: not supported: {expected}"


# as published with Qwen3-30B-A3B-FP8, with Qwen3.5's FP8, and as transformers writes it
PUBLISHED: list[dict[str, object]] = [
    {
        "activation_scheme": "dynamic",
        "fmt": "e4m3",
        "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"],
        "quant_method": "fp8",
        "weight_block_size": [128, 128],
    },
    {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_per_tensor": False,
        "act_per_tensor": False,
        "weight_block_size": [128, 128],
    },
    {
        "activation_scheme": "dynamic",
        "dequantize": True,
        "expert_dtype": "fp8",
        "modules_to_convert": None,
        "modules_to_not_convert": None,
        "quant_method": "fp8",
        "scale_fmt": "float",
        "weight_block_size": [128, 128],
    },
]


@pytest.mark.parametrize("quantisation", PUBLISHED)
def test_published_fp8_is_accepted(
    tmp_path: Path, quantisation: dict[str, object]
) -> None:
    """Block-scaled fp8 changes no shape, and is the type of the weights."""
    plain = written(tmp_path, QWEN)
    model = model_from_folder(plain)
    assert weights_in_folder(plain) is None
    config = QWEN | {"quantization_config": quantisation}
    (plain / "config.json").write_text(json.dumps(config), encoding="utf-8")
    assert model_from_folder(plain) == model
    assert weights_in_folder(plain) is DType.FLOAT8_E4M3


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"quant_method": "gptq"}, "quantization_config of method 'gptq'"),
        (
            {"weight_block_size": [64, 128]},
            "weight_block_size [64, 128] in quantization_config",
        ),
        (
            {"weight_block_size": None},
            "weight_block_size None in quantization_config",
        ),
        ({"fmt": "e5m2"}, "fmt 'e5m2' in quantization_config"),
        ({"scale_fmt": "ue8m0"}, "scale_fmt 'ue8m0' in quantization_config"),
        (
            {"activation_scheme": "static", "kv_cache": 8},
            (
                "activation_scheme 'static' in quantization_config, "
                "kv_cache 8 in quantization_config"
            ),
        ),
    ],
)
def test_other_quantisations_are_refused_by_what_differs(
    tmp_path: Path, changes: dict[str, object], expected: str
) -> None:
    """Each key that is not as in block-scaled fp8 is named with its value."""
    quantisation = PUBLISHED[0] | changes
    path = written(tmp_path, QWEN | {"quantization_config": quantisation})
    assert refusal(path) == f"MODEL/config.json: not supported: {expected}"
    with pytest.raises(InputError, match="not supported"):
        weights_in_folder(path)


def test_a_quantisation_that_is_no_object(tmp_path: Path) -> None:
    """A quantization_config that cannot be looked into is shown."""
    path = written(tmp_path, QWEN | {"quantization_config": "fp8"})
    assert refusal(path) == (
        "MODEL/config.json: not supported: quantization_config 'fp8'"
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"model_type": "mamba"},
            "model_type 'mamba' is not supported; supported: qwen3_moe, llama",
        ),
        (
            {"model_type": "qwen3"},
            (
                "model_type 'qwen3' is not supported (a dense MLP behind QK-norm); "
                "supported: qwen3_moe, llama"
            ),
        ),
        (
            {"model_type": "llava", "text_config": {"model_type": "llama"}},
            (
                "model_type 'llava' is not supported (its language model is within a "
                "larger one, described in text_config); supported: qwen3_moe, llama"
            ),
        ),
        (
            {"model_type": None},
            "lacks model_type; is it the config of a language model?",
        ),
        (
            {"hidden_size": None},
            "lacks hidden_size; is it the config of a language model?",
        ),
        ({"num_experts": 0}, "num_experts is 0, and must be a positive integer"),
        ({"vocab_size": 0.5}, "vocab_size is 0.5, and must be a positive integer"),
        ({"head_dim": "big"}, "head_dim is 'big', and must be a positive integer"),
        ({"rms_norm_eps": -1}, "rms_norm_eps is -1, and must be a positive number"),
        ({"rope_scaling": 8}, "rope_scaling is 8, and must be an object"),
        (
            {"rope_scaling": {"rope_type": "llama3"}},
            "lacks factor; is it the config of a language model?",
        ),
        (
            {"num_key_value_heads": 5},
            "num_key_value_heads 5 does not divide num_attention_heads 32",
        ),
        ({"head_dim": 127}, "head_dim 127 is odd"),
        (
            {"num_experts_per_tok": 129},
            "num_experts_per_tok 129 exceeds the 128 experts",
        ),
    ],
)
def test_values_that_cannot_be_are_refused(
    tmp_path: Path, changes: dict[str, object], expected: str
) -> None:
    """A key that is missing or makes no sense is named, with its file."""
    path = written(tmp_path, QWEN | changes)
    assert refusal(path) == f"MODEL/config.json: {expected}"


def test_a_missing_folder(tmp_path: Path) -> None:
    """A folder that is not there says that --model takes presets too."""
    assert refusal(tmp_path / "nowhere") == (
        "MODEL: no such folder; --model takes a preset or a checkpoint folder"
    )


def test_a_folder_without_a_config(tmp_path: Path) -> None:
    """A folder that is no checkpoint is told apart from one that is missing."""
    assert refusal(tmp_path) == (
        f"MODEL/config.json: no such file; is {tmp_path.name} a checkpoint folder?"
    )


def test_a_config_that_cannot_be_read(tmp_path: Path) -> None:
    """A config.json that is a folder is reported as the system says."""
    (tmp_path / "config.json").mkdir()
    assert refusal(tmp_path) == "MODEL/config.json: cannot be read (Is a directory)"


@pytest.mark.parametrize("content", [b"{", b"\xff", b"[]"])
def test_a_config_that_is_not_json(tmp_path: Path, content: bytes) -> None:
    """A cut or garbled config.json is refused as what it is."""
    (tmp_path / "config.json").write_bytes(content)
    message = refusal(tmp_path)
    assert message.startswith("MODEL/config.json: is not ")
    assert message.endswith("; download it again")
