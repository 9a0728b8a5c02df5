"""The ``reference`` backend: the layer in plain torch, for numerics and coverage.

It is what other backends are checked against, never a baseline of speed: nothing is
fused, fp8 weights are dequantised, and experts are gathered before they are used.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf, isnan
from typing import Final

import torch
from torch import Tensor
from torch.nn import functional

from layerscope.errors import BackendError
from layerscope.layers.attention import (
    Rope,
    attend,
    causal_mask,
    project,
    rms_norm,
    rope_tables,
    row_order,
)
from layerscope.layers.draft_reference import build_draft
from layerscope.layers.feed_forward import mlp, moe, route
from layerscope.layers.problem import Problem, new_slots
from layerscope.layers.spec import SIGNATURES
from layerscope.layers.traffic import Traffic
from layerscope.layers.weights import TORCH_DTYPES, matrix
from layerscope.plugin import API_VERSION, BackendSpec, BuildContext, StepShape
from layerscope.regions import Region


@dataclass(frozen=True, slots=True)
class _Tables:
    """What does not change from replay to replay, made once."""

    rope: Rope
    mask: Tensor
    order: Tensor
    """From `attention.row_order`."""

    slots: tuple[Tensor, ...]
    """Of each pass, from `problem.new_slots`."""

    ids: Tensor
    """int64 [passes, rows, top_k]: experts chosen last; top_k is 0 if dense."""

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All tensors held."""
        rope = (self.rope.cos, self.rope.sin)
        return (*rope, self.mask, self.order, *self.slots, self.ids)


def _make_tables(problem: Problem) -> _Tables:
    spec, device = problem.spec, problem.device
    dtype = TORCH_DTYPES[spec.dtype]
    ids_shape = (problem.passes, spec.rows, spec.model.experts_per_token)
    return _Tables(
        rope=rope_tables(spec.model, problem.positions, dtype),
        mask=causal_mask(spec, device, dtype),
        order=row_order(spec, device),
        slots=tuple(new_slots(problem, index) for index in range(problem.passes)),
        ids=torch.zeros(ids_shape, dtype=torch.int64, device=device),
    )


class ReferenceStep:
    """The step of one problem; see `plugin.Step`."""

    def __init__(self, problem: Problem, tables: _Tables) -> None:
        self._problem = problem
        self._tables = tables
        self._runs: dict[Region, Callable[[int], None]] = {
            Region.ATTENTION: self._attention,
            Region.O_PROJ_ALL_REDUCE: self._o_proj,
            Region.MOE: self._moe,
            Region.MLP: self._mlp,
        }
        self._touched = self._count_bytes()

    def run(self, region: Region, pass_index: int) -> None:
        """Enqueue `region` of pass `pass_index`."""
        with torch.no_grad():
            self._runs[region](pass_index)

    def expert_ids(self, pass_index: int) -> Tensor | None:
        """Experts chosen in the last run of the pass, int64 [rows, top_k]."""
        return (
            self._tables.ids[pass_index] if self._problem.spec.model.experts else None
        )

    def touched_bytes(self, region: Region) -> int | None:
        """Bytes that the operators of `region` read and write in one pass."""
        return self._touched[region]

    def _count_bytes(self) -> dict[Region, int]:
        touched = {}
        for region in self._problem.spec.regions:
            traffic = Traffic()
            with traffic:
                self.run(region, 0)
            touched[region] = traffic.bytes
        return touched

    def _attention(self, index: int) -> None:
        problem, tables = self._problem, self._tables
        spec, buffers = problem.spec, problem.buffers[index]
        cache, slots = problem.caches[index], tables.slots[index]
        query, key, value = project(
            buffers.hidden, problem.weights[index], spec, tables.rope
        )
        cache.key.flatten(0, 1).index_copy_(0, slots, key)
        cache.value.flatten(0, 1).index_copy_(0, slots, value)
        keys, values = (
            _gather(problem, pages, index) for pages in (cache.key, cache.value)
        )
        mixed = attend(query, keys, values, tables.mask)
        # An index rather than a permuted copy: at one token a request that copy would
        # be contiguous, and a copy node in the graph instead of a kernel.
        dim = spec.model.head_dim
        out = buffers.attn_out.view(-1, dim)
        torch.index_select(mixed.view(-1, dim), 0, tables.order, out=out)

    def _o_proj(self, index: int) -> None:
        buffers, weights = self._problem.buffers[index], self._problem.weights[index]
        dtype = buffers.hidden.dtype
        added = functional.linear(buffers.attn_out, matrix(weights["o"], dtype))
        torch.add(buffers.hidden, added, out=buffers.mid_residual)
        rms_norm(
            buffers.mid_residual,
            matrix(weights["post_norm"], dtype),
            self._problem.spec.model.rms_norm_eps,
            out=buffers.mid_hidden,
        )

    def _moe(self, index: int) -> None:
        problem, ids = self._problem, self._tables.ids[index]
        hidden, weights = problem.buffers[index].mid_hidden, problem.weights[index]
        bias = _bias(problem, index)
        shares = route(hidden, weights, bias, problem.spec.model, ids)
        self._add(index, moe(hidden, weights, ids, shares))

    def _mlp(self, index: int) -> None:
        hidden = self._problem.buffers[index].mid_hidden
        self._add(index, mlp(hidden, self._problem.weights[index]))

    def _add(self, index: int, added: Tensor) -> None:
        buffers = self._problem.buffers[index]
        torch.add(buffers.mid_residual, added, out=buffers.out)


class ReferenceBuilt:
    """The reference, built for one problem; see `plugin.Built`."""

    def __init__(self, problem: Problem) -> None:
        tables = _make_tables(problem)
        self._spec = problem.spec
        self._step = ReferenceStep(problem, tables)
        self.device_bytes = sum(tensor.nbytes for tensor in tables.tensors)

    def plan(self, shape: StepShape) -> ReferenceStep | None:
        """The step if `shape` is the problem's own, else None."""
        spec = self._spec
        own = StepShape(spec.requests, spec.tokens_per_request, spec.context)
        return self._step if shape == own else None


def build(context: BuildContext) -> ReferenceBuilt:
    """Build the reference for `context.problem`.

    Raises:
        BackendError: the spec has real ranks, which need communication.
    """
    spec = context.problem.spec
    if spec.tp > 1 and not spec.shard_shaped:
        msg = (
            f"reference has no communication between the {spec.tp} ranks; "
            "measure one rank's slice with --shard-shaped"
        )
        raise BackendError(msg)
    return ReferenceBuilt(context.problem)


def _gather(problem: Problem, pages: Tensor, index: int) -> Tensor:
    """The tokens of every request in order, [requests, tokens, kv_heads, head_dim]."""
    spec = problem.spec
    picked = pages.index_select(0, problem.caches[index].page_table.flatten())
    tokens = torch.unflatten(picked.flatten(0, 1), 0, (spec.requests, -1))
    return tokens[:, : spec.context + spec.tokens_per_request]


def _bias(problem: Problem, index: int) -> Tensor:
    if problem.router_bias is None:
        msg = f"{problem.spec.model.name} has experts, the problem no router bias"
        raise TypeError(msg)
    return problem.router_bias[index]


def reference_output(
    problem: Problem, pass_index: int, dtype: torch.dtype = torch.float32
) -> Tensor:
    """What pass `pass_index` should make of its current input, in higher precision.

    Weights are dequantised and everything is computed in `dtype`, without TF32. Writes
    nothing into the problem: the new KV rows replace those of a copy.

    Returns:
        [rows, hidden_size] in `dtype`: what `out` should hold.
    """
    with torch.no_grad(), _full_precision():
        return _layer(problem, pass_index, dtype)


def relative_error(found: Tensor, right: Tensor) -> float:
    """``|found - right| / |right|`` in the Frobenius norm; infinite where it is NaN."""
    difference = torch.linalg.norm(found.double() - right.double())
    error = float(difference / torch.linalg.norm(right.double()))
    return inf if isnan(error) else error


def _layer(problem: Problem, index: int, dtype: torch.dtype) -> Tensor:
    spec, weights = problem.spec, problem.weights[index]
    model, hidden = spec.model, problem.buffers[index].hidden.to(dtype)
    rope = rope_tables(model, problem.positions, dtype)
    query, *new = project(hidden, weights, spec, rope)
    cache = problem.caches[index]
    keys, values = (
        _replace_last(_gather(problem, pages, index).to(dtype), rows)
        for pages, rows in zip((cache.key, cache.value), new, strict=True)
    )
    mixed = attend(query, keys, values, causal_mask(spec, problem.device, dtype))
    attn_out = mixed.permute(0, 3, 1, 2, 4).reshape(spec.rows, -1)
    residual = hidden + functional.linear(attn_out, matrix(weights["o"], dtype))
    post_norm = matrix(weights["post_norm"], dtype)
    normed = rms_norm(residual, post_norm, model.rms_norm_eps)
    if not model.experts:
        return residual + mlp(normed, weights)
    ids = torch.empty(
        spec.rows, model.experts_per_token, dtype=torch.int64, device=problem.device
    )
    shares = route(normed, weights, _bias(problem, index), model, ids)
    return residual + moe(normed, weights, ids, shares)


def _replace_last(tokens: Tensor, rows: Tensor) -> Tensor:
    """`tokens` [requests, n, ...] with `rows` [requests * k, ...] as the last k."""
    new = rows.unflatten(0, (tokens.shape[0], -1))
    return torch.cat((tokens[:, : -new.shape[1]], new), 1)


@contextmanager
def _full_precision() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


BACKEND: Final = BackendSpec(
    name="reference",
    api_version=API_VERSION,
    summary="the layer in plain torch, unfused: for numerics, not for speed",
    covers={
        family: tuple(signature.region for signature in signatures)
        for family, signatures in SIGNATURES.items()
    },
    build=build,
    build_draft=build_draft,
    skippable=(
        Region.ATTENTION,
        Region.O_PROJ_ALL_REDUCE,
        Region.MOE,
        Region.MLP,
    ),
)
