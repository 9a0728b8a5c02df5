import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from layerscope.layers.attention import attend, causal_mask, project, rope_tables
from layerscope.layers.families import layer_tensors
from layerscope.layers.feed_forward import mlp, moe, route
from layerscope.layers.spec import DType, Family, LayerSpec, ModelShape
from layerscope.layers.weights import (
    BlockScaled,
    join,
    keeps_blocks,
    matrix,
    pick,
    quantise,
    random_weights,
    shard,
    stack,
)

CPU = torch.device("cpu")


@given(
    st.integers(1, 300), st.integers(1, 300), st.floats(1e-30, 1e30), st.integers(0, 9)
)
def test_quantising_keeps_every_block_close(
    rows: int, cols: int, size: float, seed: int
) -> None:
    """An element is off by at most half a step of fp8, 1/16 of it or of a subnormal.

    e4m3 has 3 mantissa bits, so half a step is 2 ** -4 of the value; below 2 ** -6 of
    scaled value the step is 2 ** -9.
    """
    draw = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, cols, generator=draw) * size
    scaled = quantise(values)
    assert scaled.scale.shape == (-(-rows // 128), -(-cols // 128))
    steps = scaled.scale.repeat_interleave(128, 0).repeat_interleave(128, 1)
    bound = values.abs() / 16 + steps[:rows, :cols] * 2**-10
    error = (scaled.dequantise(torch.float32) - values).abs()
    assert bool((error <= bound * 1.001).all())


def test_the_scale_is_amax_over_448_block_by_block() -> None:
    """Each block of 128 x 128 has its own scale, ragged ones too; zeros stay zero."""
    values = torch.zeros(130, 257)
    values[0, 0], values[129, 5], values[3, 256] = -448.0, 4.48, 1.0
    scaled = quantise(values)
    tiny = torch.finfo(torch.float32).tiny
    expected = torch.tensor([[1.0, tiny, 1 / 448], [0.01, tiny, tiny]])
    torch.testing.assert_close(scaled.scale, expected)
    torch.testing.assert_close(scaled.dequantise(torch.float32), values)


def test_values_of_fp8_survive_quantising() -> None:
    """Blocks whose values are fp8 times a power of two come back bit by bit."""
    codes = torch.arange(256, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    codes = codes[codes.isfinite()]
    values = (codes * 2.0**-7).repeat(20)[: 2 * 128].view(2, 128)
    assert values.abs().max() == 448 * 2**-7
    assert torch.equal(quantise(values).dequantise(torch.float32), values)


def test_a_stack_is_quantised_matrix_by_matrix() -> None:
    """Experts do not share blocks."""
    stack = torch.randn(3, 140, 64) * torch.tensor([1.0, 10.0, 100.0])[:, None, None]
    scaled = quantise(stack)
    assert scaled.scale.shape == (3, 2, 1)
    for index in range(3):
        alone = quantise(stack[index])
        assert torch.equal(scaled.data[index].float(), alone.data.float())
        assert torch.equal(scaled.scale[index], alone.scale)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_picking_is_indexing(dtype: torch.dtype) -> None:
    """Picked matrices are those of the whole stack, repeats included."""
    plain, index = torch.randn(4, 130, 20), torch.tensor([3, 0, 3])
    scaled = quantise(plain)
    assert torch.equal(pick(plain, index, dtype), plain[index].to(dtype))
    assert torch.equal(pick(scaled, index, dtype), matrix(scaled, dtype)[index])


def equal(first: Tensor | BlockScaled, second: Tensor | BlockScaled) -> bool:
    """Whether two weights are stored alike and have the same values."""
    return type(first) is type(second) and torch.equal(
        matrix(first, torch.float32), matrix(second, torch.float32)
    )


def test_a_stack_is_block_scaled_if_all_of_it_is() -> None:
    """Stacking what a stack consists of gives it back; beside plain it is plain."""
    plain = torch.randn(2, 140, 64)
    scaled = quantise(plain)
    first, second = scaled.matrices()
    assert equal(stack([first, second]), scaled)
    assert equal(
        stack([first, plain[1].half()]),
        torch.stack([matrix(first, torch.float32), plain[1].half().float()]),
    )


@pytest.mark.parametrize(("above", "keeps"), [(128, True), (256, True), (130, False)])
def test_joining_keeps_blocks_that_stay_in_place(above: int, *, keeps: bool) -> None:
    """A matrix below another keeps its blocks if it begins where one does."""
    parts = [quantise(torch.randn(rows, 200)) for rows in (above, 70)]
    joined = join(parts)
    assert isinstance(joined, BlockScaled) == keeps
    values = torch.cat([matrix(part, torch.float32) for part in parts])
    assert torch.equal(matrix(joined, torch.float32), values)


def test_joining_plain_matrices_keeps_their_type() -> None:
    """Only what must be dequantised becomes float32."""
    halves = torch.randn(3, 5).half(), torch.randn(4, 5).half()
    joined = join(halves)
    assert isinstance(joined, Tensor)
    assert joined.dtype is torch.float16
    assert torch.equal(joined, torch.cat(halves))


def flat(weights: dict[str, Tensor | BlockScaled]) -> dict[str, list[float]]:
    """The values of weights, comparable with ==."""
    return {
        name: matrix(tensor, torch.float32).flatten().tolist()
        for name, tensor in weights.items()
    }


@pytest.mark.parametrize("weight_dtype", DType)
def test_random_weights_follow_the_table(
    model: ModelShape, weight_dtype: DType
) -> None:
    """Weights have the table's shapes and types, and follow from seed and pass."""
    spec = LayerSpec(model=model, weight_dtype=weight_dtype)
    weights = dict(random_weights(spec, CPU, seed=1, pass_index=2))
    for table in layer_tensors(spec):
        tensor = weights[table.name]
        data = tensor.data if isinstance(tensor, BlockScaled) else tensor
        assert tuple(data.shape) == table.shape
        assert str(data.dtype).startswith(f"torch.{table.dtype(spec).value}")
    assert len(weights) == len(layer_tensors(spec))
    assert flat(dict(random_weights(spec, CPU, 1, 2))) == flat(weights)
    assert flat(dict(random_weights(spec, CPU, 1, 3))) != flat(weights)
    assert flat(dict(random_weights(spec, CPU, 2, 2))) != flat(weights)


def test_random_weights_keep_activations_at_their_size(moe: ModelShape) -> None:
    """Matrices have deviation 1 / sqrt(fan in) of the whole, norms are around 1."""
    spec = LayerSpec(model=moe, dtype=DType.FLOAT32, weight_dtype=DType.FLOAT32, tp=2)
    weights = random_weights(spec, CPU, seed=0, pass_index=0)
    down, norm = weights["down"], weights["input_norm"]
    assert isinstance(down, Tensor)
    assert isinstance(norm, Tensor)
    assert down.shape == (8, 48, 16)
    assert float(down.std()) == pytest.approx(32**-0.5, rel=0.05)
    assert float(norm.mean()) == pytest.approx(1, abs=0.1)


def whole(model: ModelShape) -> tuple[LayerSpec, dict[str, Tensor]]:
    """The unsharded layer in float32."""
    spec = LayerSpec(
        model=model,
        draft_tokens=2,
        context=0,
        dtype=DType.FLOAT32,
        weight_dtype=DType.FLOAT32,
    )
    weights = random_weights(spec, CPU, seed=0, pass_index=0)
    return spec, {
        name: matrix(tensor, torch.float32) for name, tensor in weights.items()
    }


def attention_part(spec: LayerSpec, weights: dict[str, Tensor | BlockScaled]) -> Tensor:
    """What one rank's attention adds to the residual, [rows, hidden_size]."""
    draw = torch.Generator().manual_seed(5)
    hidden = torch.randn(spec.rows, spec.model.hidden_size, generator=draw)
    rope = rope_tables(spec.model, torch.arange(spec.rows), torch.float32)
    query, key, value = project(hidden, weights, spec, rope)
    mask = causal_mask(spec, CPU, torch.float32)
    mixed = attend(query, key[None], value[None], mask)
    attn_out = mixed.permute(0, 3, 1, 2, 4).reshape(spec.rows, -1)
    return attn_out @ matrix(weights["o"], torch.float32).t()


def feed_forward_part(
    spec: LayerSpec, weights: dict[str, Tensor | BlockScaled]
) -> Tensor:
    """What one rank's moe or mlp adds to the residual, [rows, hidden_size]."""
    draw = torch.Generator().manual_seed(6)
    hidden = torch.randn(spec.rows, spec.model.hidden_size, generator=draw)
    if not spec.model.experts:
        return mlp(hidden, weights)
    ids = torch.empty(spec.rows, spec.model.experts_per_token, dtype=torch.int64)
    bias = torch.zeros(spec.rows, spec.model.experts)
    shares = route(hidden, weights, bias, spec.model, ids)
    return moe(hidden, weights, ids, shares)


@pytest.mark.parametrize("part", [attention_part, feed_forward_part])
@pytest.mark.parametrize("tp", [2, 4])
def test_the_ranks_add_up_to_the_layer(
    moe: ModelShape, dense: ModelShape, part: object, tp: int
) -> None:
    """Outputs of all ranks, KV heads replicated or not, sum to the unsharded one's."""
    assert callable(part)
    for model in (moe, msgspec.structs.replace(dense, query_heads=8)):
        spec, weights = whole(model)
        sliced = msgspec.structs.replace(spec, tp=tp, shard_shaped=True)
        sliced.check()
        parts = [part(sliced, shard(weights, sliced, rank)) for rank in range(tp)]
        assert max(float(each.abs().max()) for each in parts) > 0.1
        torch.testing.assert_close(sum(parts), part(spec, weights))


def test_ranks_that_outnumber_kv_heads_replicate_them(moe: ModelShape) -> None:
    """Of 4 ranks and 2 KV heads, two neighbours hold the head their queries read."""
    spec, weights = whole(moe)
    sliced = msgspec.structs.replace(spec, tp=4, shard_shaped=True)
    qkv = weights["qkv"].view(12, 16, 48)
    for rank in range(4):
        rows = shard(weights, sliced, rank)["qkv"]
        kv_head = rank // 2
        heads = [2 * rank, 2 * rank + 1, 8 + kv_head, 10 + kv_head]
        assert isinstance(rows, Tensor)
        assert torch.equal(rows.view(4, 16, 48), qkv[heads])


@given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 300), st.data())
def test_a_slice_of_blocks_has_the_values_of_the_slice(
    tp: int, kv_heads: int, width: int, data: st.DataObject
) -> None:
    """Of published blocks a rank has the very values, or those quantised again."""
    model = ModelShape(
        name="any",
        family=Family.LLAMA,
        layers=1,
        hidden_size=data.draw(st.integers(1, 200)),
        query_heads=tp * kv_heads,
        kv_heads=data.draw(st.sampled_from([kv_heads * tp, 1])),
        head_dim=data.draw(st.sampled_from([32, 64, 128])),
        rms_norm_eps=1e-6,
        rope_theta=1e4,
        mlp_size=tp * width,
    )
    spec = LayerSpec(model=model, dtype=DType.FLOAT32, weight_dtype=DType.FLOAT8_E4M3)
    sliced = msgspec.structs.replace(spec, tp=tp, shard_shaped=True)
    published = random_weights(spec, CPU, seed=0, pass_index=0)
    plain = {name: matrix(each, torch.float32) for name, each in published.items()}
    rank = data.draw(st.integers(0, tp - 1))
    float_spec = msgspec.structs.replace(sliced, weight_dtype=DType.FLOAT32)
    truth = shard(plain, float_spec, rank)
    weights = shard(published, sliced, rank)
    for table in layer_tensors(sliced):
        ours, whole = weights[table.name], published[table.name]
        values = matrix(truth[table.name], torch.float32)
        if isinstance(whole, Tensor) or keeps_blocks(whole, table, sliced, rank):
            assert torch.equal(matrix(ours, torch.float32), values)
        else:
            assert equal(ours, quantise(values))


def test_slices_are_quantised_after_sharding(dense: ModelShape) -> None:
    """A block-scaled slice is the quantised slice, not a slice of quantised blocks."""
    spec, weights = whole(dense)
    sliced = msgspec.structs.replace(
        spec, tp=2, shard_shaped=True, weight_dtype=DType.FLOAT8_E4M3
    )
    down = shard(weights, sliced, 1)["down"]
    expected = quantise(weights["down"][:, 48:])
    assert isinstance(down, BlockScaled)
    assert torch.equal(down.data.float(), expected.data.float())
    assert torch.equal(down.scale, expected.scale)
