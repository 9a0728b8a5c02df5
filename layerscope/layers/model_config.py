"""A model's shape from the ``config.json`` of its checkpoint folder, without torch.

Accepts what `transformers` 4 and 5 write. A feature that the families here do not
compute is refused by name: a layer that is nearly right is not the layer.
"""

import json
from pathlib import Path
from typing import Any, Final, NoReturn

from layerscope.errors import InputError
from layerscope.layers.other_families import difference
from layerscope.layers.spec import (
    QUANT_BLOCK,
    DType,
    Family,
    ModelShape,
    RopeScaling,
)

_DEFAULT_THETA: Final = 10000.0
_DEFAULT_EPS: Final = 1e-6

# key -> the values under which a layer computes what these families compute
_PLAIN: Final[dict[str, tuple[object, ...]]] = {
    "attention_bias": (False, None),
    "mlp_bias": (False, None),
    "hidden_act": ("silu",),
    "use_sliding_window": (False, None),
    "partial_rotary_factor": (1, None),
    "decoder_sparse_step": (1, None),
    "mlp_only_layers": ([], None),
    "shared_expert_intermediate_size": (0, None),
    "n_shared_experts": (0, None),
    "num_shared_experts": (0, None),
}

_QUANTISATION: Final = "quantization_config"

# the same for the quantised weights that are read as they are published
_FP8: Final[dict[str, tuple[object, ...]]] = {
    "fmt": ("e4m3", None),
    "weight_block_size": ([QUANT_BLOCK, QUANT_BLOCK],),
    "weight_per_tensor": (False, None),
    "scale_fmt": ("float", None),
    "expert_dtype": ("fp8", None),
    "activation_scheme": ("dynamic", None),
    "act_per_tensor": (False, None),
}
# Which modules are quantised is seen in their tensors; the last is a wish to a loader.
_FP8_ANY: Final = frozenset(
    {
        *("quant_method", "modules_to_convert", "modules_to_not_convert"),
        *("ignored_layers", "dequantize"),
    }
)


class _Config:
    """Typed access to a parsed ``config.json``; errors name the file and the key."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path = path
        self.values = values

    def refuse(self, problem: str) -> NoReturn:
        """Raise the one-line error."""
        msg = f"{self.path}: {problem}"
        raise InputError(msg)

    def integer(self, *keys: str, default: int | None = None) -> int:
        """The positive integer under the first of `keys` that is there."""
        value = self._find(keys, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            self.refuse(f"{keys[0]} is {value!r}, and must be a positive integer")
        return value

    def number(self, *keys: str, default: float | None = None) -> float:
        """The positive number under the first of `keys` that is there."""
        value = self._find(keys, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            self.refuse(f"{keys[0]} is {value!r}, and must be a positive number")
        return float(value)

    def _find(self, keys: tuple[str, ...], default: object) -> object:
        for key in keys:
            if self.values.get(key) is not None:
                return self.values[key]
        if default is None:
            self.refuse(f"lacks {keys[0]}; is it the config of a language model?")
        return default


def model_from_folder(path: str | Path) -> ModelShape:
    """The shape of the model in the folder `path`, named after the folder.

    Raises:
        InputError: the folder or its ``config.json`` is missing or malformed, lacks a
            key, or describes a model that none of the families computes.
    """
    folder = Path(path)
    config = _read(folder)
    family = _family(config)
    _refuse_features(config)
    heads = config.integer("num_attention_heads")
    hidden = config.integer("hidden_size")
    scaling, theta = _rope(config)
    shape: dict[str, Any] = {
        "name": folder.resolve().name,
        "family": family,
        "layers": config.integer("num_hidden_layers"),
        "hidden_size": hidden,
        "query_heads": heads,
        "kv_heads": config.integer("num_key_value_heads", default=heads),
        "head_dim": config.integer("head_dim", default=hidden // heads),
        "rms_norm_eps": config.number("rms_norm_eps", default=_DEFAULT_EPS),
        "rope_theta": theta,
        "rope_scaling": scaling,
        "vocab_size": _vocabulary(config),
    }
    if family is Family.LLAMA:
        shape["mlp_size"] = config.integer("intermediate_size")
    else:
        shape |= _experts(config)
    model = ModelShape(**shape)
    _check_sizes(config, model)
    return model


def weights_in_folder(path: str | Path) -> DType | None:
    """The type of matrices that the config in the folder `path` publishes.

    Returns:
        ``FLOAT8_E4M3`` if they are block-scaled, None if they are not quantised.

    Raises:
        InputError: as `model_from_folder`.
    """
    config = _read(Path(path))
    _refuse_features(config)
    is_plain = config.values.get(_QUANTISATION) is None
    return None if is_plain else DType.FLOAT8_E4M3


def _read(folder: Path) -> _Config:
    if not folder.is_dir():
        msg = f"{folder}: no such folder; --model takes a preset or a checkpoint folder"
        raise InputError(msg)
    path = folder / "config.json"
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        msg = f"{path}: no such file; is {folder.name} a checkpoint folder?"
        raise InputError(msg) from error
    except OSError as error:
        msg = f"{path}: cannot be read ({error.strerror})"
        raise InputError(msg) from error
    except ValueError as error:  # of JSON, and of its encoding
        msg = f"{path}: is not JSON ({error}); download it again"
        raise InputError(msg) from error
    if not isinstance(values, dict):
        msg = f"{path}: is not a JSON object; download it again"
        raise InputError(msg)
    return _Config(path, values)


def _family(config: _Config) -> Family:
    name = config.values.get("model_type")
    if name is None:
        config.refuse("lacks model_type; is it the config of a language model?")
    supported = [family.value for family in Family]
    if name not in supported:
        what = difference(str(name), config.values)
        because = f" ({what})" if what else ""
        known = ", ".join(supported)
        refused = f"model_type {name!r} is not supported{because}"
        config.refuse(f"{refused}; supported: {known}")
    return Family(name)


def _refuse_features(config: _Config) -> None:
    refused = [
        f"{key} {config.values[key]!r}"
        for key, plain in _PLAIN.items()
        if key in config.values and config.values[key] not in plain
    ]
    # Qwen configs keep a window size that use_sliding_window turns off.
    window = config.values.get("sliding_window")
    if window is not None and "use_sliding_window" not in config.values:
        refused.append(f"sliding_window {window!r}")
    refused += _quantisation_differences(config.values.get(_QUANTISATION))
    if refused:
        config.refuse(f"not supported: {', '.join(refused)}")


def _quantisation_differences(values: object) -> list[str]:
    """What in a ``quantization_config`` is not as in fp8 with blocks of 128 x 128."""
    if values is None:
        return []
    if not isinstance(values, dict):
        return [f"{_QUANTISATION} {values!r}"]
    method = values.get("quant_method")
    if method != "fp8":
        return [f"{_QUANTISATION} of method {method!r}"]
    keys = [key for key in (_FP8 | values) if key not in _FP8_ANY]
    return [
        f"{key} {values.get(key)!r} in {_QUANTISATION}"
        for key in keys
        if values.get(key) not in _FP8.get(key, (None,))
    ]


def _rope(config: _Config) -> tuple[RopeScaling | None, float]:
    """The scaling and base; transformers 5 keeps both in ``rope_parameters``."""
    name = "rope_parameters" if config.values.get("rope_parameters") else "rope_scaling"
    values = config.values.get(name) or {}
    if not isinstance(values, dict):
        config.refuse(f"{name} is {values!r}, and must be an object")
    rope = _Config(config.path, values)
    kind = values.get("rope_type", values.get("type", "default"))
    if kind not in ("default", "llama3"):
        config.refuse(f"not supported: {name} of type {kind!r}")
    if values.get("partial_rotary_factor") not in _PLAIN["partial_rotary_factor"]:
        config.refuse(f"not supported: partial_rotary_factor in {name}")
    outer = config.number("rope_theta", default=_DEFAULT_THETA)
    theta = rope.number("rope_theta", default=outer)
    if kind == "default":
        return None, theta
    scaling = RopeScaling(
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_max_position_embeddings=rope.integer(
            "original_max_position_embeddings"
        ),
    )
    return scaling, theta


def _vocabulary(config: _Config) -> int:
    """Rows of the head, which no layer needs: 0 if the config does not say."""
    key = "vocab_size"
    return 0 if config.values.get(key) is None else config.integer(key)


def _experts(config: _Config) -> dict[str, Any]:
    return {
        "experts": config.integer("num_experts", "num_local_experts"),
        "experts_per_token": config.integer("num_experts_per_tok"),
        "expert_size": config.integer("moe_intermediate_size"),
        "normalize_top_k": config.values.get("norm_topk_prob") is True,
    }


def _check_sizes(config: _Config, model: ModelShape) -> None:
    if model.query_heads % model.kv_heads:
        config.refuse(
            f"num_key_value_heads {model.kv_heads} does not divide "
            f"num_attention_heads {model.query_heads}"
        )
    if model.head_dim % 2:
        config.refuse(f"head_dim {model.head_dim} is odd")
    if model.experts_per_token > model.experts:
        config.refuse(
            f"num_experts_per_tok {model.experts_per_token} exceeds the "
            f"{model.experts} experts"
        )
