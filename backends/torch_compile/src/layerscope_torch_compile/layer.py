"""The regions of every pass of a problem, with the tensors they compute on."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from layerscope.layers.attention import Rope, rope_tables
from layerscope.layers.problem import Problem, new_slots
from layerscope.layers.weights import TORCH_DTYPES, Weights
from layerscope.regions import Region
from layerscope_torch_compile.attention import (
    AttentionTensors,
    Formulation,
    OProjTensors,
    Pages,
    attention,
    formulation,
    make_pages,
    o_proj,
)
from layerscope_torch_compile.compiling import tensors_of
from layerscope_torch_compile.feed_forward import MlpTensors, MoeTensors, mlp, moe
from layerscope_torch_compile.products import Matrix, matrix_of

RegionFunction: TypeAlias = Callable[[Any], None]
"""Runs a region on its tensors of one pass, a named tuple."""


@dataclass(frozen=True, slots=True)
class Tables:
    """What the regions need beside the problem's own tensors."""

    rope: Rope
    """Its sines as `AttentionTensors.sin` has them."""

    slots: tuple[Tensor, ...]
    """Of each pass, from `problem.new_slots`."""

    pages: tuple[Pages | None, ...]
    """Of each pass; None where attention does not need them."""

    ids: tuple[tuple[Tensor, ...], ...]
    """Of each pass: `MoeTensors.ids`; none if dense."""

    @property
    def device_bytes(self) -> int:
        """Of all its tensors."""
        rope = (self.rope.cos, self.rope.sin)
        own = tensors_of((rope, self.slots, self.pages, self.ids))
        return sum(tensor.nbytes for tensor in own)


@dataclass(frozen=True, slots=True)
class Layer:
    """The regions of one problem, not yet compiled."""

    functions: dict[Region, RegionFunction]
    """In execution order; each serves all passes."""

    passes: tuple[dict[Region, Any], ...]
    """Of each pass: the tensors of its regions, in execution order."""

    tables: Tables


def make_layer(problem: Problem) -> Layer:
    """Bind the regions of `problem` to its buffers, and make the tables they need."""
    spec = problem.spec
    form = formulation(spec, problem.device)
    functions: dict[Region, RegionFunction] = {
        Region.ATTENTION: attention(spec, form),
        Region.O_PROJ_ALL_REDUCE: o_proj(spec),
        Region.MOE: moe(spec),
        Region.MLP: mlp,
    }
    tables = _make_tables(problem, form)
    last = _moe_tensors if spec.model.experts else _mlp_tensors
    makers = (_attention_tensors, _o_proj_tensors, last)
    return Layer(
        functions={region: functions[region] for region in spec.regions},
        passes=tuple(
            {
                region: make(problem, tables, index)
                for region, make in zip(spec.regions, makers, strict=True)
            }
            for index in range(problem.passes)
        ),
        tables=tables,
    )


def _make_tables(problem: Problem, form: Formulation) -> Tables:
    spec = problem.spec
    rope = rope_tables(spec.model, problem.positions, TORCH_DTYPES[spec.dtype])
    first, second = rope.sin.chunk(2, -1)

    def columns() -> tuple[Tensor, ...]:
        shape = (spec.model.experts_per_token, spec.rows)
        zeros = torch.zeros(shape, dtype=torch.int64, device=problem.device)
        return tuple(column.clone() for column in zeros)

    return Tables(
        rope=Rope(rope.cos, torch.cat((-first, second), -1)),
        slots=tuple(new_slots(problem, index) for index in range(problem.passes)),
        pages=tuple(
            make_pages(spec, cache.page_table) if form == "flex" else None
            for cache in problem.caches
        ),
        ids=tuple(columns() for _ in range(problem.passes)),
    )


def _attention_tensors(
    problem: Problem, tables: Tables, index: int
) -> AttentionTensors:
    buffers, weights = problem.buffers[index], problem.weights[index]
    cache = problem.caches[index]
    has_qk_norm = "q_norm" in weights
    return AttentionTensors(
        hidden=buffers.hidden,
        attn_out=buffers.attn_out,
        key=cache.key.flatten(0, 1),
        value=cache.value.flatten(0, 1),
        slots=tables.slots[index],
        page_table=cache.page_table,
        positions=problem.positions,
        cos=tables.rope.cos,
        sin=tables.rope.sin,
        input_norm=_plain(weights, "input_norm"),
        qkv=matrix_of(weights["qkv"]),
        q_norm=_plain(weights, "q_norm") if has_qk_norm else None,
        k_norm=_plain(weights, "k_norm") if has_qk_norm else None,
        pages=tables.pages[index],
    )


def _o_proj_tensors(problem: Problem, _: Tables, index: int) -> OProjTensors:
    buffers, weights = problem.buffers[index], problem.weights[index]
    return OProjTensors(
        attn_out=buffers.attn_out,
        residual=buffers.hidden,
        mid_residual=buffers.mid_residual,
        mid_hidden=buffers.mid_hidden,
        o=matrix_of(weights["o"]),
        post_norm=_plain(weights, "post_norm"),
    )


def _mlp_tensors(problem: Problem, _: Tables, index: int) -> MlpTensors:
    buffers, weights = problem.buffers[index], problem.weights[index]
    return MlpTensors(
        hidden=buffers.mid_hidden,
        residual=buffers.mid_residual,
        out=buffers.out,
        gate_up=matrix_of(weights["gate_up"]),
        down=matrix_of(weights["down"]),
    )


def _moe_tensors(problem: Problem, tables: Tables, index: int) -> MoeTensors:
    buffers, weights = problem.buffers[index], problem.weights[index]
    if problem.router_bias is None:
        msg = f"{problem.spec.model.name} has experts, the problem no router bias"
        raise TypeError(msg)
    return MoeTensors(
        hidden=buffers.mid_hidden,
        residual=buffers.mid_residual,
        out=buffers.out,
        router=matrix_of(weights["router"]),
        bias=problem.router_bias[index],
        gate_up=matrix_of(weights["gate_up"]),
        down=matrix_of(weights["down"]),
        ids=tables.ids[index],
    )


def _plain(weights: Weights, name: str) -> Tensor:
    """A weight that is never quantised."""
    weight: Matrix = matrix_of(weights[name])
    return weight.data
