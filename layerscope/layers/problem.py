"""Everything an arm computes on: weights, KV caches, buffers, inputs and routing.

One `Problem` serves all arms of a study; they differ only in how they compute. Every
pass has its own weights, KV cache and page table, so that no pass finds the memory of
the one before it in a cache. All tensors are allocated once and never move.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from layerscope.layers.families import estimate_bytes
from layerscope.layers.feed import Feed, Pool, make_feed
from layerscope.layers.routing import distinct_experts, expert_plan, routing_bias
from layerscope.layers.seeding import generator
from layerscope.layers.spec import LayerSpec
from layerscope.layers.weights import (
    TORCH_DTYPES,
    BlockScaled,
    Weights,
    quantise,
    random_weights,
    shard,
)

__all__ = [
    "BlockScaled",
    "Buffers",
    "PagedKV",
    "Problem",
    "ProblemOptions",
    "Weights",
    "distinct_experts",
    "estimate_bytes",
    "make_problem",
    "new_slots",
    "poison",
    "quantise",
]


@dataclass(frozen=True, slots=True)
class PagedKV:
    """The KV cache of one pass.

    Token t of request r is in slot t % page_size of page ``page_table[r, t //
    page_size]``. No page belongs to two requests.
    """

    key: Tensor
    """[pages, page_size, kv_heads, head_dim] in the spec's dtype, rotated."""

    value: Tensor
    """[pages, page_size, kv_heads, head_dim] in the spec's dtype."""

    page_table: Tensor
    """int32 [requests, pages_per_request]."""


@dataclass(frozen=True, slots=True)
class Buffers:
    """The activations of one pass, in the spec's dtype; they never move."""

    hidden: Tensor
    """[rows, hidden_size]: the input. It is the residual too: they enter as one."""

    attn_out: Tensor
    """[rows, query_heads * head_dim]: written by attention."""

    mid_hidden: Tensor
    """[rows, hidden_size]: `mid_residual` normed, written by o_proj_all_reduce."""

    mid_residual: Tensor
    """[rows, hidden_size]: `hidden` + attention, written by o_proj_all_reduce."""

    out: Tensor
    """[rows, hidden_size]: `mid_residual` + moe or mlp; `hidden` of the next pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One layer, `passes` times over, with inputs for `steps` replays."""

    spec: LayerSpec
    passes: int
    steps: int
    device: torch.device

    weights: tuple[Weights, ...]
    """Of each pass, in memory of its own."""

    caches: tuple[PagedKV, ...]
    """Of each pass."""

    buffers: tuple[Buffers, ...]
    """Of each pass; ``buffers[k].out is buffers[k + 1].hidden``."""

    positions: Tensor
    """int64 [rows]: position of each row in its request, context and up."""

    inputs: Tensor
    """[steps, rows, hidden_size] in the spec's dtype: `hidden` of the first pass."""

    router_bias: Tensor | None
    """float32 [passes, rows, experts], what routers add now; None if dense."""

    bias_pool: Tensor | None
    """float32 [steps, passes, rows, experts]; None if dense."""

    expert_plan: Tensor | None
    """int64 [steps, passes, rows, top_k] on the CPU: what the bias pins."""

    feed: Feed
    """Loads `inputs` and `bias_pool`, one step of them a replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemOptions:
    """How a problem is made."""

    passes: int
    steps: int
    seed: int = 0
    device: str = "cpu"
    weights: Weights | None = None
    """A whole layer's weights from `checkpoint.load_layer`; None draws random ones."""

    rank: int = 0
    """Which slice of `weights` to take."""


def make_problem(spec: LayerSpec, options: ProblemOptions) -> Problem:
    """Allocate and fill a problem on its device, with the inputs of step 0 loaded.

    The same spec, options and device type make the same values; those of a pass or
    step do not depend on how many there are.

    Raises:
        InputError: `spec` cannot be run by any machine (`LayerSpec.check`).
    """
    spec.check()
    device = torch.device(options.device)
    plan = bias_pool = router_bias = None
    if spec.model.experts:
        plan = expert_plan(spec, options.passes, options.steps, options.seed)
        bias_pool = routing_bias(plan, spec.model.experts, device)
        router_bias = bias_pool[0].clone()
    inputs = _make_inputs(spec, options, device)
    buffers = _make_buffers(spec, options.passes, inputs)
    pools = [Pool(inputs, buffers[0].hidden)]
    if bias_pool is not None and router_bias is not None:
        pools.append(Pool(bias_pool, router_bias))
    return Problem(
        spec=spec,
        passes=options.passes,
        steps=options.steps,
        device=device,
        weights=_make_weights(spec, options, device),
        caches=tuple(
            _make_cache(spec, device, options.seed, index)
            for index in range(options.passes)
        ),
        buffers=buffers,
        positions=_make_positions(spec, device),
        inputs=inputs,
        router_bias=router_bias,
        bias_pool=bias_pool,
        expert_plan=plan,
        feed=make_feed(options.steps, tuple(pools), device),
    )


def _make_weights(
    spec: LayerSpec, options: ProblemOptions, device: torch.device
) -> tuple[Weights, ...]:
    passes = range(options.passes)
    if options.weights is None:
        return tuple(
            random_weights(spec, device, options.seed, index) for index in passes
        )
    whole = {name: each.to(device) for name, each in options.weights.items()}
    one = shard(whole, spec, options.rank)
    return tuple({name: one[name].clone() for name in one} for _ in passes)


def _make_cache(
    spec: LayerSpec, device: torch.device, seed: int, pass_index: int
) -> PagedKV:
    pages = spec.requests * spec.pages_per_request
    shape = (pages, spec.page_size, spec.kv_heads, spec.model.head_dim)
    key, value = (
        torch.empty(shape, dtype=TORCH_DTYPES[spec.dtype], device=device).normal_(
            generator=generator(device, seed, name, pass_index)
        )
        for name in ("key", "value")
    )
    draw = generator(torch.device("cpu"), seed, "page_table", pass_index)
    table = torch.randperm(pages, generator=draw).to(torch.int32)
    return PagedKV(key, value, table.view(spec.requests, -1).to(device))


def _make_inputs(
    spec: LayerSpec, options: ProblemOptions, device: torch.device
) -> Tensor:
    shape = (options.steps, spec.rows, spec.model.hidden_size)
    inputs = torch.empty(shape, dtype=TORCH_DTYPES[spec.dtype], device=device)
    for step, rows in enumerate(inputs):
        rows.normal_(generator=generator(device, options.seed, "inputs", step))
    return inputs


def _make_buffers(spec: LayerSpec, passes: int, inputs: Tensor) -> tuple[Buffers, ...]:
    hidden = [inputs[0].clone()]
    hidden += [torch.zeros_like(hidden[0]) for _ in range(passes)]
    attn_width = spec.query_heads * spec.model.head_dim
    return tuple(
        Buffers(
            hidden=before,
            attn_out=before.new_zeros(spec.rows, attn_width),
            mid_hidden=torch.zeros_like(before),
            mid_residual=torch.zeros_like(before),
            out=after,
        )
        for before, after in pairwise(hidden)
    )


def _make_positions(spec: LayerSpec, device: torch.device) -> Tensor:
    first, count = spec.context, spec.tokens_per_request
    return torch.arange(first, first + count, device=device).repeat(spec.requests)


def new_slots(problem: Problem, pass_index: int) -> Tensor:
    """Where the new rows go in the pass's KV cache, int64 [rows].

    Indexes the first two dimensions of the cache seen as one: page * page_size + slot.
    """
    spec, cache = problem.spec, problem.caches[pass_index]
    positions = problem.positions.view(spec.requests, -1)
    pages = cache.page_table.gather(1, positions // spec.page_size).long()
    return (pages * spec.page_size + positions % spec.page_size).flatten()


def poison(problem: Problem) -> None:
    """Write NaN to all that the passes of a replay must write, new KV rows included.

    What they only read stays, so that it may be called before or after `advance`.
    """
    nan = float("nan")
    for index, (buffers, cache) in enumerate(
        zip(problem.buffers, problem.caches, strict=True)
    ):
        written = (buffers.attn_out, buffers.mid_hidden, buffers.mid_residual)
        for tensor in (*written, buffers.out):
            tensor.fill_(nan)
        slots = new_slots(problem, index)
        for pages in (cache.key, cache.value):
            pages.flatten(0, 1).index_fill_(0, slots, nan)
