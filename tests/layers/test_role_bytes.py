import subprocess
import sys
from itertools import chain

import pytest

from layerscope.graphs.skeleton import standard_chain
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.families import weight_bytes
from layerscope.layers.presets import preset
from layerscope.layers.role_bytes import role_operands
from layerscope.layers.spec import DType, LayerSpec, ModelShape

BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3
NORMS = ("input_norm", "q_norm", "k_norm", "post_norm")


def test_roles_of_a_moe_layer_read_weights_and_cache(moe: ModelShape) -> None:
    """Each matrix once, of experts the distinct ones, and K and V of the context."""
    spec = LayerSpec(model=moe, requests=2, draft_tokens=2, context=10)
    assert role_operands(spec, [5]) == {
        "qkv": {"qkv": 192 * 48 * 2},
        "attention": {"cached K and V": 20 * 2 * 2 * 16 * 2},
        "o_proj": {"o": 48 * 128 * 2},
        "router": {"router": 8 * 48 * 2},
        "gate_up": {"gate_up": 5 * 64 * 48 * 2},
        "down": {"down": 5 * 48 * 32 * 2},
    }


def test_a_dense_layer_has_no_router(dense: ModelShape) -> None:
    """Block-scaled matrices have four bytes a block of 128 x 128 more."""
    spec = LayerSpec(model=dense, context=3, weight_dtype=FP8)
    assert role_operands(spec) == {
        "qkv": {"qkv": 160 * 48 + 2 * 4},
        "attention": {"cached K and V": 3 * 2 * 2 * 16 * 2},
        "o_proj": {"o": 48 * 96 + 4},
        "gate_up": {"gate_up": 192 * 48 + 2 * 4},
        "down": {"down": 48 * 96 + 4},
    }


def test_experts_count_by_the_mean_of_what_was_drawn(moe: ModelShape) -> None:
    """Bytes of 4, 4 and 6 experts are those of 4 2/3, rounded down."""
    found = role_operands(LayerSpec(model=moe), [4, 6, 4])
    assert found["down"] == {"down": 14 * 48 * 32 * 2 // 3}
    assert found["router"] == {"router": 8 * 48 * 2}


def test_tokens_of_a_draft_read_w2_anew() -> None:
    """One kernel for all tokens reads it once, and every position's base logits."""
    spec = DraftSpec(model="paper", vocab_size=10, rank=3, requests=2, tokens=2)
    w2, first, second = {"w2": 60}, {"base logits 1": 80}, {"base logits 2": 80}
    assert role_operands(spec) == {
        "token_1": w2 | first,
        "token_2": w2 | second,
        "tokens": w2 | first | second,
        "draft": w2 | first | second,
    }


@pytest.mark.parametrize("tp", [1, 8])
@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize(
    ("model", "experts"), [("qwen3-30b-a3b", 41), ("llama-3.1-8b", None)]
)
def test_operands_are_all_that_the_standard_chain_reads(
    model: str, experts: int | None, weights: DType, tp: int
) -> None:
    """Nothing is counted twice, and nothing left out but the weights of norms."""
    spec = LayerSpec(
        model=preset(model), weight_dtype=weights, tp=tp, shard_shaped=tp > 1
    )
    found = role_operands(spec, [] if experts is None else [experts])
    operands = dict(chain.from_iterable(each.items() for each in found.values()))
    norms = weight_bytes(spec, experts)
    rest = sum(norms.get(name, 0) for name in NORMS)
    read = sum(stage.bytes for stage in standard_chain(spec, experts))
    assert sum(operands.values()) + rest == read


def test_drawn_experts_must_fit_the_family(moe: ModelShape, dense: ModelShape) -> None:
    """Bytes of experts are not guessed, nor experts of a dense layer ignored."""
    with pytest.raises(ValueError, match="small-moe and distinct_experts None"):
        role_operands(LayerSpec(model=moe))
    with pytest.raises(ValueError, match="small-dense and distinct_experts 4"):
        role_operands(LayerSpec(model=dense), [4])


def test_bytes_of_roles_need_no_torch() -> None:
    """Reports count them where torch is not installed."""
    code = (
        "import sys; sys.modules['torch'] = None\nimport layerscope.layers.role_bytes"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
