"""What must hold for each kernel on any bench, against float64 on fresh inputs.

The same checks run on the CPU, with small shapes, and on a GPU, with real ones too.
"""

from dataclasses import replace
from typing import Final

import torch
from msgspec import structs
from torch import Tensor

from backends.standard.tests.bench import MOE, Bench, choosing, poison, small
from layerscope.layers.attention import (
    attend,
    causal_mask,
    rms_norm,
    rope_tables,
    rotate,
)
from layerscope.layers.presets import preset
from layerscope.layers.problem import Problem, new_slots
from layerscope.layers.reference import relative_error
from layerscope.layers.spec import DType, LayerSpec
from layerscope.layers.weights import BlockScaled, matrix
from layerscope_standard.attention import Attention, make_attention
from layerscope_standard.chosen import chosen_attention, chosen_experts
from layerscope_standard.experts import Experts, Routing, make_experts
from layerscope_standard.products import product
from layerscope_standard.selection import Choice

REJECT = -1e4
"""As in `layers.routing`."""

STORED = 2.0**-8
"""Half a unit in the last place of bfloat16, relative."""


def close(found: Tensor, want: Tensor, bound: float, least: float = 1e-6) -> None:
    """Every element is within `bound` of `want`, relative to it or to `least`."""
    allowed = bound * want.abs().clamp(min=least)
    off = (found.double() - want).abs()
    assert bool((off <= allowed).all()), float((off / allowed).max())


def check_product(
    bench: Bench,
    dtype: DType,
    sizes: tuple[int, int, int],
    choice: Choice | None = None,
) -> None:
    """The parts of a product add up to it; `sizes` are rows, outputs, inputs."""
    rows, outputs, inputs = sizes
    workshop = bench.workshop()
    if choice is not None:
        selection = workshop.selection.overridden("qkv", choice)
        workshop = replace(workshop, selection=selection)
    weight = bench.weight(dtype, outputs, inputs)
    made = product(workshop, "qkv", weight, rows)
    given = bench.normal(rows, inputs)
    operation = made.operation(weight, given)
    right = matrix(weight, torch.float64)
    for seed in (2, 3):
        given.copy_(bench.normal(rows, inputs, seed=seed))
        poison(workshop)
        operation.enqueue()
        bench.wait()
        want = given.double() @ right.T
        most = given.double().abs() @ right.abs().T
        off = (made.parts.double().sum(0) - want).abs()
        assert bool((off <= 2e-5 * most).all()), float((off / most).max())


def check_every_fp8_value(bench: Bench) -> None:
    """Each of the 254 finite values of e4m3 is widened exactly, subnormal ones too."""
    bits = torch.arange(256, dtype=torch.uint8, device=bench.device)
    bits[[0x7F, 0xFF]] = 0  # NaN
    data = bits.view(16, 16).repeat(1, 4).contiguous().view(torch.float8_e4m3fn)
    scale = torch.ones(1, 1, device=bench.device)
    weight = BlockScaled(data, scale)
    workshop = bench.workshop()
    made = product(workshop, "qkv", weight, 8)
    for first in range(0, 16, 8):
        picks = torch.zeros(8, 64, dtype=torch.bfloat16, device=bench.device)
        picks[torch.arange(8), first + torch.arange(8)] = 1.0
        poison(workshop)
        made.operation(weight, picks).enqueue()
        bench.wait()
        want = data.float().T[first : first + 8]
        assert torch.equal(made.parts.sum(0), want)


def _attention_of(bench: Bench, spec: LayerSpec) -> tuple[Problem, Attention]:
    problem, workshop = bench.problem(spec), bench.workshop()
    made = chosen_attention(make_attention(problem, workshop))
    poison(workshop)
    return problem, made


def check_norms(bench: Bench, spec: LayerSpec) -> None:
    """The input norm, and the residual addition with the norm after it."""
    problem, made = _attention_of(bench, spec)
    eps = spec.model.rms_norm_eps
    for index, seed in ((0, 5), (1, 6)):
        buffers, weights = problem.buffers[index], problem.weights[index]
        shape = (spec.rows, spec.model.hidden_size)
        buffers.hidden.copy_(bench.normal(*shape, seed=seed, scale=3.0))
        made.operations(index)[0].enqueue()
        bench.wait()
        norm = matrix(weights["input_norm"], torch.float64)
        close(made.normed, rms_norm(buffers.hidden.double(), norm, eps), 2.5 * STORED)

        made.o.parts.normal_()
        for operation in made.o_proj(index)[1:]:
            operation.enqueue()
        bench.wait()
        summed = buffers.hidden.double() + made.o.parts.double().sum(0)
        close(buffers.mid_residual, summed, STORED, least=1e-2)
        norm = matrix(weights["post_norm"], torch.float64)
        want = rms_norm(buffers.mid_residual.double(), norm, eps)
        close(buffers.mid_hidden, want, 2.5 * STORED)


def check_rope(bench: Bench, spec: LayerSpec) -> None:
    """Rotated queries, and the new rows of the cache; other rows stay."""
    problem, made = _attention_of(bench, spec)
    weights, cache = problem.weights[1], problem.caches[1]
    made.qkv.parts.normal_()
    before = cache.key.clone()
    made.operations(1)[2].enqueue()
    bench.wait()
    heads = made.qkv.parts.double().sum(0).unflatten(-1, (-1, spec.model.head_dim))
    query, key, value = heads.split([spec.query_heads, spec.kv_heads, spec.kv_heads], 1)
    if "q_norm" in weights:
        eps = spec.model.rms_norm_eps
        query = rms_norm(query, matrix(weights["q_norm"], torch.float64), eps)
        key = rms_norm(key, matrix(weights["k_norm"], torch.float64), eps)
    rope = rope_tables(spec.model, problem.positions, torch.float64)
    slots = new_slots(problem, 1)
    keys, values = (each.flatten(0, 1) for each in (cache.key, cache.value))
    for found, want in (
        (made.queries, rotate(query, rope)),
        (keys[slots], rotate(key, rope)),
        (values[slots], value),
    ):
        close(found, want, 1.1 * STORED, least=1e-2)
    before.flatten(0, 1)[slots] = keys[slots]
    assert torch.equal(before, cache.key)


def check_attention(bench: Bench, spec: LayerSpec, scale: float = 1.0) -> None:
    """Attention of `queries` over the cache as it is; `scale` spreads the scores."""
    problem, made = _attention_of(bench, spec)
    tokens = spec.context + spec.tokens_per_request
    mask = causal_mask(spec, bench.device, torch.float64)
    for index in (0, 1):
        cache, buffers = problem.caches[index], problem.buffers[index]
        shape = made.queries.shape
        made.queries.copy_(bench.normal(*shape, seed=7 + index, scale=scale))
        made.mixed.fill_(torch.nan)
        buffers.attn_out.fill_(torch.nan)
        for operation in made.operations(index)[3:5]:
            operation.enqueue()
        bench.wait()
        keys, values = (
            pages[cache.page_table.long()].flatten(1, 2)[:, :tokens].double()
            for pages in (cache.key, cache.value)
        )
        mixed = attend(made.queries.double(), keys, values, mask)
        want = mixed.permute(0, 3, 1, 2, 4).reshape(spec.rows, -1)
        assert relative_error(buffers.attn_out, want) < 4e-3


def _experts_of(bench: Bench, spec: LayerSpec) -> tuple[Problem, Experts]:
    problem, workshop = bench.problem(spec), bench.workshop()
    made = chosen_experts(make_experts(problem, workshop))
    poison(workshop)
    return problem, made


def _routing_of(made: Experts) -> Routing:
    assert made.routing is not None
    return made.routing


def adversarial(rows: int, experts: int, levels: int, seed: int) -> Tensor:
    """Logits with ties within and across lanes, both zeros, and both signs."""
    draw = torch.Generator().manual_seed(seed)
    drawn = torch.randint(-levels, levels + 1, (rows, experts), generator=draw).float()
    drawn[:, ::3] *= -1.0  # zeros become negative ones
    drawn[0] = 0.0
    drawn[-1] = -drawn[-1].abs() - 1.0
    return drawn


def logit_parts(shape: torch.Size, levels: int, draw: torch.Generator) -> Tensor:
    """Parts that all count: with few levels their sums tie, and zeros are negative.

    Args:
        shape: [parts, rows, experts].
        levels: as of `adversarial`.
        draw: what draws.
    """
    if levels > 9:
        return torch.randn(shape, generator=draw) * levels
    drawn = torch.randint(-levels, levels + 1, tuple(shape), generator=draw).float()
    return torch.where(drawn == 0.0, -0.0, drawn)


TOP_K: Final = {
    "16": (small(MOE), 1),
    "128": (small(preset("qwen3-30b-a3b"), draft_tokens=7), 4),
    "126": (small(structs.replace(MOE, experts=126)), 2),
    "40": (small(structs.replace(MOE, experts=40, normalize_top_k=False)), 3),
    "512": (small(structs.replace(MOE, experts=512), draft_tokens=0), 5),
    "all-of-8": (small(structs.replace(MOE, experts=8, experts_per_token=8)), 1),
}
"""Layers for `check_top_k`, and of how many parts their logits are."""


def check_top_k(bench: Bench, spec: LayerSpec, splits: int) -> None:
    """The largest logits, ties to the lowest expert, and their weights.

    Of `spec` with small matrices, which it does not look at.
    """
    model = structs.replace(spec.model, hidden_size=272, expert_size=16)
    spec = structs.replace(spec, model=model)
    choice = Choice(options={"splits": splits})
    problem, made = _experts_of(choosing(bench, {"router": choice}), spec)
    routing = _routing_of(made)
    assert problem.router_bias is not None
    draw = torch.Generator().manual_seed(11)
    for seed, levels in enumerate((0, 1, 2, 9, 10**6)):  # the fewer, the more ties
        parts = logit_parts(routing.router.parts.shape, levels, draw)
        rows, experts = parts.shape[1:]
        parts[-1] += adversarial(rows, experts, levels, seed)
        parts = parts.to(bench.device)
        routing.router.parts.copy_(parts)
        rejected = torch.rand((rows, experts), generator=draw) < 0.2
        problem.router_bias[0].copy_(torch.where(rejected, REJECT, -0.0))
        made.operations(0)[1].enqueue()
        bench.wait()
        total = problem.router_bias[0].clone()
        for part in parts:
            total += part
        order = total.double().sort(dim=-1, descending=True, stable=True)
        want = order.indices[:, : made.top_k]
        assert torch.equal(routing.ids[0].long(), want)
        shares = total.double().softmax(-1).gather(1, want)
        if spec.model.normalize_top_k:
            shares = shares / shares.sum(-1, keepdim=True)
        close(made.row_weights, shares, 1e-5, least=1e-30)


def _draw_ids(made: Experts, spec: LayerSpec, seed: int) -> Tensor:
    """Experts of every row, of which some are shared; int64 [rows, top_k]."""
    draw = torch.Generator().manual_seed(seed)
    scores = torch.rand(spec.rows, spec.model.experts, generator=draw)
    scores[:, spec.model.experts // 2] += 1.0
    return scores.topk(made.top_k).indices


def check_align(bench: Bench, spec: LayerSpec) -> None:
    """Experts that have rows, in order, each with its pairs in order."""
    _, made = _experts_of(bench, spec)
    ids = _routing_of(made).ids[1]
    for seed in (13, 14):
        ids.copy_(_draw_ids(made, spec, seed))
        made.operations(1)[2].enqueue()
        bench.wait()
        chosen, table = ids.flatten().tolist(), made.table.tolist()
        experts = sorted(set(chosen))
        assert table[0] == len(experts)
        for slot, expert in enumerate(experts):
            entry = table[4 + 12 * slot : 16 + 12 * slot]
            pairs = [pair for pair, each in enumerate(chosen) if each == expert]
            assert entry[:2] == [expert, len(pairs)]
            assert entry[4 : 4 + len(pairs)] == pairs


def _run_experts(bench: Bench, made: Experts, index: int, seed: int) -> Tensor:
    """Run the experts on drawn rows; of every row, those it was sent to."""
    spec, buffers = made.problem.spec, made.problem.buffers[index]
    shape = (spec.rows, spec.model.hidden_size)
    buffers.mid_hidden.copy_(bench.normal(*shape, seed=seed))
    buffers.mid_residual.copy_(bench.normal(*shape, seed=seed + 1))
    buffers.out.fill_(torch.nan)
    made.active.fill_(torch.nan)
    ids = torch.zeros(spec.rows, 1, dtype=torch.int64)
    if made.routing is not None:
        ids = _draw_ids(made, spec, seed)
        made.routing.ids[index].copy_(ids)
        draw = torch.Generator().manual_seed(seed)
        made.row_weights.copy_(torch.rand(ids.shape, generator=draw))
        made.operations(index)[2].enqueue()
    for operation in made.after_routing(index):
        operation.enqueue()
    bench.wait()
    return ids


def experts_outputs(bench: Bench, spec: LayerSpec) -> list[Tensor]:
    """What both passes give; the same for the same bits of all sums."""
    problem, made = _experts_of(bench, spec)
    for index, seed in ((0, 17), (1, 18)):
        _run_experts(bench, made, index, seed)
    return [each.out for each in problem.buffers]


def check_experts(bench: Bench, spec: LayerSpec) -> None:
    """The sum over experts, or the dense MLP, from normed rows and the residual."""
    problem, made = _experts_of(bench, spec)
    for index, seed in ((0, 17), (1, 18)):
        ids = _run_experts(bench, made, index, seed)
        buffers, weights = problem.buffers[index], problem.weights[index]
        rows = buffers.mid_hidden.double()
        gate_up, down = (
            matrix(weights[name], torch.float64) for name in ("gate_up", "down")
        )
        gate_up, down = (
            each if each.dim() == 3 else each[None] for each in (gate_up, down)
        )
        picked = ids.to(bench.device)
        gate, up = torch.einsum("rkoi,ri->rko", gate_up[picked], rows).chunk(2, -1)
        active = torch.nn.functional.silu(gate) * up
        found = made.active.view(active.shape)
        assert relative_error(found, active) < 2 * STORED
        each = torch.einsum("rkoi,rki->rko", down[picked], found.double())
        added = (each * made.row_weights.double()[..., None]).sum(1)
        want = buffers.mid_residual.double() + added
        close(buffers.out, want, 1.1 * STORED, least=1e-2)
