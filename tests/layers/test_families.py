import subprocess
import sys

import pytest

from layerscope.layers.families import layer_tensors, required_bytes
from layerscope.layers.presets import preset
from layerscope.layers.spec import DType, LayerSpec, ModelShape
from layerscope.regions import Region


def shapes(spec: LayerSpec) -> dict[str, tuple[int, ...]]:
    """The shape of every tensor of `spec`."""
    return {tensor.name: tensor.shape for tensor in layer_tensors(spec)}


def test_tensors_of_a_moe_layer(moe: ModelShape) -> None:
    """A Qwen3-MoE layer has these tensors, in this order."""
    assert shapes(LayerSpec(model=moe)) == {
        "input_norm": (48,),
        "qkv": (12 * 16, 48),
        "q_norm": (16,),
        "k_norm": (16,),
        "o": (48, 128),
        "post_norm": (48,),
        "router": (8, 48),
        "gate_up": (8, 64, 48),
        "down": (8, 48, 32),
    }


def test_tensors_of_a_dense_layer_on_one_of_two_ranks(dense: ModelShape) -> None:
    """A rank of two has half the heads and half the MLP width of a Llama layer."""
    assert shapes(LayerSpec(model=dense, tp=2, shard_shaped=True)) == {
        "input_norm": (48,),
        "qkv": ((3 + 2 * 1) * 16, 48),
        "o": (48, 48),
        "post_norm": (48,),
        "gate_up": (96, 48),
        "down": (48, 48),
    }


def test_required_bytes_of_a_moe_layer(moe: ModelShape) -> None:
    """Weights, norms, KV and activations count once; of experts the distinct ones."""
    spec = LayerSpec(
        model=moe, requests=2, draft_tokens=2, context=10, weight_dtype=DType.BFLOAT16
    )
    hidden, attn_out, kv_row = 6 * 48 * 2, 6 * 128 * 2, 2 * 2 * 16 * 2
    attention_weights = (48 + 192 * 48 + 16 + 16) * 2
    assert required_bytes(spec, 5) == {
        Region.ATTENTION: attention_weights + 26 * kv_row + hidden + attn_out,
        Region.O_PROJ_ALL_REDUCE: (48 * 128 + 48) * 2 + attn_out + 3 * hidden,
        Region.MOE: (8 * 48 + 5 * 3 * 32 * 48) * 2 + 3 * hidden,
    }


def test_required_bytes_of_block_scaled_weights(dense: ModelShape) -> None:
    """An fp8 matrix is a byte an element and four bytes a block of 128 x 128."""
    spec = LayerSpec(
        model=dense,
        draft_tokens=0,
        context=0,
        dtype=DType.FLOAT32,
        weight_dtype=DType.FLOAT8_E4M3,
    )
    hidden, attn_out, kv_row = 48 * 4, 96 * 4, 2 * 2 * 16 * 4
    qkv = 160 * 48 + 2 * 4
    assert required_bytes(spec, None) == {
        Region.ATTENTION: 48 * 4 + qkv + kv_row + hidden + attn_out,
        Region.O_PROJ_ALL_REDUCE: 48 * 96 + 4 + 48 * 4 + attn_out + 3 * hidden,
        Region.MLP: (192 * 48 + 2 * 4) + (48 * 96 + 4) + 3 * hidden,
    }


def test_required_bytes_of_a_known_layer() -> None:
    """Llama-3.1-8B at 8K context reads 436 MB of weights and 33.6 MB of cache."""
    spec = LayerSpec(model=preset("llama-3.1-8b"), context=8192)
    weights = sum(tensor.stored_bytes(spec) for tensor in layer_tensors(spec))
    assert weights == 436_224_000
    cache = 8192 * 2 * 8 * 128 * 2
    assert cache == 33_554_432
    rest = sum(required_bytes(spec, None).values()) - weights - cache
    assert 0 < rest < 1_000_000


def test_distinct_experts_must_fit_the_family(
    moe: ModelShape, dense: ModelShape
) -> None:
    """Bytes of routed experts are not guessed, nor experts of a dense layer ignored."""
    with pytest.raises(ValueError, match="distinct_experts must be given"):
        required_bytes(LayerSpec(model=moe), None)
    with pytest.raises(ValueError, match="distinct_experts must be None"):
        required_bytes(LayerSpec(model=dense), 4)


def test_the_tables_need_no_torch() -> None:
    """Reports can import the tables and presets where torch is not installed."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import layerscope.layers.families, layerscope.layers.presets\n"
        "import layerscope.layers.model_config"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
