from dataclasses import dataclass
from math import inf, sqrt

import msgspec
import pytest
import torch
from torch import Tensor
from transformers import DynamicCache, LlamaConfig, Qwen3MoeConfig
from transformers.models.llama.modeling_llama import (
    LlamaDecoderLayer,
    LlamaRotaryEmbedding,
)
from transformers.models.qwen3_moe.modeling_qwen3_moe import (
    Qwen3MoeDecoderLayer,
    Qwen3MoeRotaryEmbedding,
)

from layerscope.errors import BackendError
from layerscope.layers.families import required_bytes
from layerscope.layers.feed import advance
from layerscope.layers.problem import (
    Problem,
    ProblemOptions,
    make_problem,
    poison,
)
from layerscope.layers.reference import (
    BACKEND,
    build,
    reference_output,
    relative_error,
)
from layerscope.layers.spec import DType, Family, LayerSpec, ModelShape
from layerscope.layers.weights import TORCH_DTYPES, BlockScaled, Weights, matrix
from layerscope.plugin import BuildContext, Step, StepShape, Waits
from layerscope.regions import Region


def small(model: ModelShape, **changes: object) -> LayerSpec:
    """Three rows behind 21 tokens on pages of 8, in float32."""
    spec = LayerSpec(
        model=model,
        draft_tokens=2,
        context=21,
        page_size=8,
        dtype=DType.FLOAT32,
        weight_dtype=DType.FLOAT32,
    )
    return msgspec.structs.replace(spec, **changes)


def context(problem: Problem) -> BuildContext:
    """What the reference is built from."""
    waits = Waits(abort=torch.zeros(1, dtype=torch.int32))
    return BuildContext(problem=problem, waits=waits)


def reference_step(problem: Problem) -> Step:
    """The reference, built for `problem`."""
    spec = problem.spec
    shape = StepShape(spec.requests, spec.tokens_per_request, spec.context)
    step = build(context(problem)).plan(shape)
    assert step is not None
    return step


def run_pass(problem: Problem, step: Step, index: int) -> Tensor:
    """All regions of one pass; its output."""
    for region in problem.spec.regions:
        step.run(region, index)
    return problem.buffers[index].out


def output_error(problem: Problem, index: int, expected: Tensor) -> float:
    """Relative Frobenius error of the output of a pass, as `plugin.Numerics` has it."""
    error = problem.buffers[index].out.double() - expected.double()
    return float(error.norm() / expected.double().norm())


def added_error(problem: Problem, index: int, expected: Tensor) -> float:
    """Relative Frobenius error of what the pass added to its input: stricter."""
    buffers = problem.buffers[index]
    error = buffers.out.double() - expected.double()
    added = expected.double() - buffers.hidden.double()
    return float(error.norm() / added.norm())


@dataclass(frozen=True)
class Transformers:
    """The decoder layer of transformers, with the weights of one pass."""

    layer: torch.nn.Module
    rotary: torch.nn.Module


def transformers_layer(model: ModelShape, weights: Weights) -> Transformers:
    """The layer that `weights` belong to, in eager attention."""
    sizes = {
        "hidden_size": model.hidden_size,
        "num_attention_heads": model.query_heads,
        "num_key_value_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "rms_norm_eps": model.rms_norm_eps,
        "rope_parameters": rope_parameters(model),
        "attn_implementation": "eager",
    }
    state = state_dict(model, weights)
    if model.family is Family.LLAMA:
        config = LlamaConfig(intermediate_size=model.mlp_size, **sizes)
        layer, rotary = LlamaDecoderLayer(config, 0), LlamaRotaryEmbedding(config)
    else:
        config = Qwen3MoeConfig(
            num_experts=model.experts,
            num_experts_per_tok=model.experts_per_token,
            moe_intermediate_size=model.expert_size,
            norm_topk_prob=model.normalize_top_k,
            experts_implementation="eager",
            **sizes,
        )
        layer, rotary = Qwen3MoeDecoderLayer(config, 0), Qwen3MoeRotaryEmbedding(config)
    layer.load_state_dict(state)
    return Transformers(layer.eval(), rotary)


def rope_parameters(model: ModelShape) -> dict[str, object]:
    """As in a config of transformers 5."""
    base = {"rope_type": "default", "rope_theta": model.rope_theta}
    if model.rope_scaling is None:
        return base
    return base | {"rope_type": "llama3"} | msgspec.structs.asdict(model.rope_scaling)


def state_dict(model: ModelShape, weights: Weights) -> dict[str, Tensor]:
    """`weights` under the names of transformers."""
    plain = {name: matrix(value, torch.float32) for name, value in weights.items()}
    heads = [model.query_heads, model.kv_heads, model.kv_heads]
    q, k, v = plain["qkv"].split([count * model.head_dim for count in heads])
    state = {
        "input_layernorm.weight": plain["input_norm"],
        "self_attn.q_proj.weight": q,
        "self_attn.k_proj.weight": k,
        "self_attn.v_proj.weight": v,
        "self_attn.o_proj.weight": plain["o"],
        "post_attention_layernorm.weight": plain["post_norm"],
    }
    if model.family is Family.LLAMA:
        gate, up = plain["gate_up"].chunk(2)
        return state | {
            "mlp.gate_proj.weight": gate,
            "mlp.up_proj.weight": up,
            "mlp.down_proj.weight": plain["down"],
        }
    return state | {
        "self_attn.q_norm.weight": plain["q_norm"],
        "self_attn.k_norm.weight": plain["k_norm"],
        "mlp.gate.weight": plain["router"],
        "mlp.experts.gate_up_proj": plain["gate_up"],
        "mlp.experts.down_proj": plain["down"],
    }


def transformers_output(problem: Problem, index: int) -> Tensor:
    """What transformers makes of the input and cache of a pass, [rows, hidden_size]."""
    spec, model = problem.spec, problem.spec.model
    theirs = transformers_layer(model, problem.weights[index])
    cache = problem.caches[index]
    kept = DynamicCache()
    if spec.context:
        keys, values = (
            contiguous(pages, cache.page_table, spec.context)
            for pages in (cache.key, cache.value)
        )
        kept.update(keys, values, 0)
    hidden = problem.buffers[index].hidden.view(spec.requests, -1, model.hidden_size)
    new = torch.arange(spec.context, spec.context + spec.tokens_per_request)
    positions = new.expand(spec.requests, -1)
    with torch.no_grad():
        output: Tensor = theirs.layer(
            hidden,
            attention_mask=mask_of(positions),
            position_ids=positions,
            cache=kept,
            position_embeddings=theirs.rotary(hidden, positions),
        )
    return output.reshape(spec.rows, -1)


def mask_of(positions: Tensor) -> Tensor:
    """0 where a row may look and -inf elsewhere, [requests, 1, rows, tokens].

    A row at a position, [requests, rows], sees the keys up to it, and the last row all.
    Made without any mask of ours, so that a wrong one would show.
    """
    keys = torch.arange(int(positions.max()) + 1)
    sees = keys <= positions[:, None, :, None]
    return torch.zeros(sees.shape).masked_fill(~sees, -torch.inf)


def contiguous(pages: Tensor, page_table: Tensor, context: int) -> Tensor:
    """The first `context` tokens, [requests, kv_heads, context, head_dim]."""
    requests = [
        torch.cat([pages[page] for page in table])[:context]
        for table in page_table.tolist()
    ]
    return torch.stack(requests).transpose(1, 2)


@pytest.mark.parametrize(
    ("requests", "draft_tokens"), [(1, 0), (2, 0), (1, 5), (2, 2), (1, 7), (2, 3)]
)
@pytest.mark.parametrize(
    ("context", "page_size"), [(0, 16), (1, 1), (37, 16), (64, 8), (61, 64), (130, 4)]
)
def test_equals_transformers(
    model: ModelShape, requests: int, draft_tokens: int, context: int, page_size: int
) -> None:
    """In fp32 the reference is transformers' decoder layer to 1e-5, on every pass.

    1, 6 and 8 rows (and 2), 1 and 2 requests, contexts that fill their pages or not.
    """
    spec = small(
        model,
        requests=requests,
        draft_tokens=draft_tokens,
        context=context,
        page_size=page_size,
    )
    problem = make_problem(spec, ProblemOptions(passes=2, steps=1))
    if problem.router_bias is not None:
        problem.router_bias.zero_()  # transformers knows no bias
    step = reference_step(problem)
    for index in range(2):
        expected = transformers_output(problem, index)
        run_pass(problem, step, index)
        assert added_error(problem, index, expected) <= 1e-5
        ours = reference_output(problem, index)
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-5)


def test_unnormalised_weights_equal_transformers(moe: ModelShape) -> None:
    """Where the config does not normalise the chosen weights, neither do we."""
    model = msgspec.structs.replace(moe, normalize_top_k=False)
    problem = make_problem(small(model), ProblemOptions(passes=1, steps=1))
    assert problem.router_bias is not None
    problem.router_bias.zero_()
    expected = transformers_output(problem, 0)
    run_pass(problem, reference_step(problem), 0)
    assert added_error(problem, 0, expected) <= 1e-5


def test_a_change_of_anything_is_seen(model: ModelShape) -> None:
    """The proof has teeth: each weight, and the last cached token, matter to 1e-5."""
    problem = make_problem(small(model), ProblemOptions(passes=1, steps=1))
    step = reference_step(problem)
    run_pass(problem, step, 0)
    cache = problem.caches[0]
    page = int(cache.page_table[0, 20 // 8])
    tensors = {
        name: tensor
        for name, tensor in problem.weights[0].items()
        if isinstance(tensor, Tensor)
    }
    tensors["key"], tensors["value"] = (
        cache.key[page, 20 % 8],
        cache.value[page, 20 % 8],
    )
    for name, tensor in tensors.items():
        before = tensor.clone()
        tensor.mul_(1 + 0.05 * torch.arange(tensor.numel()).view_as(tensor).cos())
        expected = reference_output(problem, 0)
        assert added_error(problem, 0, expected) > 1e-5, name
        tensor.copy_(before)
    assert added_error(problem, 0, reference_output(problem, 0)) <= 1e-5


@pytest.mark.parametrize("requests", [1, 2])
@pytest.mark.parametrize("weight_dtype", DType)
@pytest.mark.parametrize("dtype", [DType.FLOAT32, DType.BFLOAT16])
def test_every_precision_is_within_its_bound(
    model: ModelShape, dtype: DType, weight_dtype: DType, requests: int
) -> None:
    """Each pass is within the backend's bound of float64 on the same stored values."""
    spec = small(model, dtype=dtype, weight_dtype=weight_dtype, requests=requests)
    problem = make_problem(spec, ProblemOptions(passes=3, steps=2))
    step = reference_step(problem)
    advance(problem.feed)
    poison(problem)
    for index in range(3):
        run_pass(problem, step, index)
        expected = reference_output(problem, index, torch.float64)
        bound = BACKEND.numerics.bound(dtype)
        assert output_error(problem, index, expected) <= bound


def test_block_scaled_equals_dequantised(model: ModelShape) -> None:
    """A layer of block-scaled weights is the layer of their dequantised values."""
    scaled = make_problem(
        small(model, weight_dtype=DType.FLOAT8_E4M3), ProblemOptions(passes=1, steps=1)
    )
    assert any(isinstance(each, BlockScaled) for each in scaled.weights[0].values())
    plain = {
        name: matrix(tensor, torch.float32)
        for name, tensor in scaled.weights[0].items()
    }
    options = ProblemOptions(passes=1, steps=1, weights=plain)
    dequantised = make_problem(small(model), options)
    outputs = [
        run_pass(problem, reference_step(problem), 0)
        for problem in (scaled, dequantised)
    ]
    assert torch.equal(*outputs)


def test_the_planned_experts_run(moe: ModelShape) -> None:
    """The experts of every pass are those of the plan, step by step."""
    problem = make_problem(small(moe), ProblemOptions(passes=2, steps=2))
    step = reference_step(problem)
    assert problem.expert_plan is not None
    for number in (0, 1, 0):
        for index in range(2):
            run_pass(problem, step, index)
            ids = step.expert_ids(index)
            assert ids is not None
            planned = problem.expert_plan[number, index]
            assert ids.sort(-1).values.tolist() == planned.sort(-1).values.tolist()
        advance(problem.feed)


def test_a_dense_layer_has_no_expert_ids(dense: ModelShape) -> None:
    """Without experts there are no ids to compare."""
    problem = make_problem(small(dense), ProblemOptions(passes=1, steps=1))
    assert reference_step(problem).expert_ids(0) is None


def test_reference_output_writes_nothing(model: ModelShape) -> None:
    """The problem, KV rows and buffers included, is the same after it."""
    problem = make_problem(small(model), ProblemOptions(passes=1, steps=1))
    cache, buffers = problem.caches[0], problem.buffers[0]
    tensors = [cache.key, cache.value, buffers.hidden, buffers.attn_out, buffers.out]
    before = [tensor.clone() for tensor in tensors]
    output = reference_output(problem, 0)
    assert output.dtype is torch.float32
    assert all(map(torch.equal, tensors, before))
    assert not torch.equal(output, buffers.out)


def test_reference_output_restores_the_matmul_precision(moe: ModelShape) -> None:
    """TF32 is off while it computes, and as it was before afterwards."""
    problem = make_problem(small(moe), ProblemOptions(passes=1, steps=1))
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        reference_output(problem, 0)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)


def test_shard_shaped_layers_run(model: ModelShape) -> None:
    """A rank's slice runs as a layer of its own, and equals its own reference."""
    spec = small(model, tp=2, shard_shaped=True)
    problem = make_problem(spec, ProblemOptions(passes=1, steps=1))
    run_pass(problem, reference_step(problem), 0)
    assert added_error(problem, 0, reference_output(problem, 0)) <= 1e-5


def test_real_ranks_are_refused(moe: ModelShape) -> None:
    """The reference does not leave out communication that was asked for."""
    problem = make_problem(small(moe, tp=2), ProblemOptions(passes=1, steps=1))
    with pytest.raises(BackendError) as caught:
        BACKEND.build(context(problem))
    assert str(caught.value) == (
        "reference has no communication between the 2 ranks; measure one rank's slice "
        "with --shard-shaped"
    )


def test_other_shapes_are_left_to_others(moe: ModelShape) -> None:
    """The reference agrees to run the problem's own step, and no other."""
    problem = make_problem(small(moe), ProblemOptions(passes=1, steps=1))
    built = BACKEND.build(context(problem))
    assert built.plan(StepShape(1, 3, 21)) is not None
    assert built.plan(StepShape(1, 4, 21)) is None
    assert built.plan(StepShape(1, 3, 22)) is None


def test_touched_bytes_count_every_operand(moe: ModelShape) -> None:
    """The bytes of o_proj_all_reduce are the sum over its eight operators."""
    problem = make_problem(small(moe), ProblemOptions(passes=1, steps=1))
    hidden, row, weight = 3 * 48 * 4, 3 * 4, 48 * 4
    product = 3 * 128 * 4 + 48 * 128 * 4 + hidden
    mean = (hidden + hidden) + (hidden + row)
    root = 2 * row + 2 * row
    norm = mean + root + (hidden + row + hidden) + (weight + hidden + hidden)
    touched = reference_step(problem).touched_bytes(Region.O_PROJ_ALL_REDUCE)
    assert touched == product + 3 * hidden + norm


@pytest.mark.parametrize("weight_dtype", DType)
def test_touched_bytes_are_never_below_required(
    model: ModelShape, weight_dtype: DType
) -> None:
    """No region touches less than it must move; experts are gathered, so thrice."""
    spec = small(model, weight_dtype=weight_dtype)
    problem = make_problem(spec, ProblemOptions(passes=1, steps=1))
    step = reference_step(problem)
    pairs = spec.rows * model.experts_per_token
    required = required_bytes(spec, pairs if model.experts else None)
    touched = {region: step.touched_bytes(region) or 0 for region in spec.regions}
    assert [region for region in required if touched[region] < required[region]] == []
    if model.experts:
        assert touched[Region.MOE] > 2.5 * required[Region.MOE]


def test_the_device_bytes_are_its_tables(dense: ModelShape) -> None:
    """RoPE tables, mask, order and slots are all that the reference allocates."""
    problem = make_problem(small(dense), ProblemOptions(passes=2, steps=1))
    built = BACKEND.build(context(problem))
    rope, mask, order, slots = 2 * 3 * 16 * 4, 3 * 24 * 4, 3 * 6 * 8, 2 * 3 * 8
    assert built.device_bytes == rope + mask + order + slots


def test_it_covers_every_family() -> None:
    """The reference runs every region of every family."""
    assert {family: regions[-1] for family, regions in BACKEND.covers.items()} == {
        Family.QWEN3_MOE: Region.MOE,
        Family.LLAMA: Region.MLP,
    }
    assert set(TORCH_DTYPES) == set(DType)


def test_the_relative_error_is_over_the_whole_output() -> None:
    """An output that is not a number is as wrong as can be."""
    right = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    assert relative_error(right, right) == 0.0
    assert relative_error(right + torch.tensor([0.0, 1.0]), right) == sqrt(2) / 5
    assert relative_error(right.bfloat16() * torch.nan, right) == inf
