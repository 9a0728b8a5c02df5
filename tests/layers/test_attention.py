import msgspec
import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from layerscope.layers.attention import (
    attend,
    causal_mask,
    rms_norm,
    rope_tables,
    rotate,
    row_order,
)
from layerscope.layers.presets import preset
from layerscope.layers.spec import LayerSpec, ModelShape

CPU = torch.device("cpu")


def test_rope_tables_are_those_of_transformers() -> None:
    """Llama 3.1's scaled tables equal transformers', bit by bit, up to 130K."""
    model = preset("llama-3.1-8b")
    config = LlamaConfig(
        hidden_size=model.hidden_size,
        num_attention_heads=model.query_heads,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 5e5,
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    )
    positions = torch.tensor([0, 1, 17, 8192, 131071])
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), positions[None])
    rope = rope_tables(model, positions, torch.float32)
    assert torch.equal(rope.cos[:, 0], cos[0])
    assert torch.equal(rope.sin[:, 0], sin[0])


def test_rotation_depends_on_distance_only(moe: ModelShape) -> None:
    """The product of a rotated query and key is a function of their distance."""
    draw = torch.Generator().manual_seed(0)
    query, key = torch.randn(2, 1, 16, dtype=torch.float64, generator=draw)
    products = []
    for start in (0, 5, 100):
        rope = rope_tables(moe, torch.tensor([start + 3, start]), torch.float64)
        both = rotate(torch.stack((query, key)), rope)
        products.append(float((both[0] * both[1]).sum()))
    assert products == pytest.approx([products[0]] * 3, rel=1e-5)
    assert products[0] != pytest.approx(float((query * key).sum()), rel=1e-2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_norm_is_computed_in_float32(dtype: torch.dtype) -> None:
    """Large bf16 rows do not overflow or lose their mean; `out` is what is written."""
    rows = torch.full((2, 64), 3.0e19, dtype=dtype)
    weight, out = torch.full((64,), 0.5, dtype=dtype), torch.empty(2, 64, dtype=dtype)
    result = rms_norm(rows / 1e10, weight, 0.0, out=out)
    assert result.data_ptr() == out.data_ptr()
    assert torch.equal(out, torch.full_like(out, 0.5))


def test_new_rows_see_the_context_and_what_came_before(moe: ModelShape) -> None:
    """Row t of a request sees its context and its rows up to t."""
    mask = causal_mask(
        LayerSpec(model=moe, context=2, draft_tokens=2), CPU, torch.float32
    )
    inf = float("inf")
    assert mask.tolist() == [[0, 0, 0, -inf, -inf], [0, 0, 0, 0, -inf], [0, 0, 0, 0, 0]]


def test_attention_equals_a_loop_over_heads(moe: ModelShape) -> None:
    """Every head of every row is softmax(q k / sqrt(d)) v of its own KV head."""
    spec = LayerSpec(model=moe, requests=2, draft_tokens=2, context=5)
    draw = torch.Generator().manual_seed(1)
    query = torch.randn(6, 8, 16, dtype=torch.float64, generator=draw)
    keys, values = torch.randn(2, 2, 8, 2, 16, dtype=torch.float64, generator=draw)
    mixed = attend(query, keys, values, causal_mask(spec, CPU, torch.float64))
    rows = mixed.reshape(-1, 16)[row_order(spec, CPU)].view(6, 8, 16)
    for row in range(6):
        request, token = divmod(row, 3)
        seen = slice(0, 5 + token + 1)
        for head in range(8):
            key = keys[request, seen, head // 4]
            shares = (key @ query[row, head] / 4).softmax(0)
            expected = shares @ values[request, seen, head // 4]
            torch.testing.assert_close(rows[row, head], expected)


def test_the_row_order_is_a_permutation(moe: ModelShape) -> None:
    """Every head of every row goes to exactly one place."""
    model = msgspec.structs.replace(moe, query_heads=6)
    spec = LayerSpec(model=model, requests=3, draft_tokens=1)
    assert sorted(row_order(spec, CPU).tolist()) == list(range(36))
