"""The regions moe and mlp: what is launched, with what."""

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from layerscope.layers.problem import Problem
from layerscope.layers.weights import BlockScaled
from layerscope_standard.kernels import Kernel, Operation
from layerscope_standard.products import Product, product
from layerscope_standard.splitting import (
    DOWN_WARPS,
    TILE_OUTPUTS,
    down_parts,
    stream_depth,
    units_of,
)
from layerscope_standard.workshop import Workshop, plain, suffix, unit

MOST_ROWS: Final = 8

_HEAD: Final = 4
_ENTRY: Final = 12
_ROW_STRIDE: Final = 20
_UP_WARPS: Final = 8
_UP_TILES: Final = 2
_UP_DEPTH: Final = 4
"""Units of k whose weights a warp has in flight."""

_DOWN_DEPTH: Final = {"bf16": 6, "fp8": 3}
"""The same of `down`, where it takes an expert at a time."""

_MOST_STREAMED_UNITS: Final = 4
"""In bfloat16, of an expert: with more, one at a time is faster."""
_GATED_OUTPUTS: Final = 8  # of gate, and as many of up, in a tile


@dataclass(frozen=True, slots=True)
class Routing:
    """From normed rows to the table of experts that have some; see code/table.cuh."""

    router: Product
    ids: tuple[Tensor, ...]
    """Of each pass: int32 [rows, top_k], best first."""


@dataclass(frozen=True, slots=True)
class Experts:
    """The region after the post-attention norm, for all passes of a problem."""

    problem: Problem
    workshop: Workshop
    top_k: int
    most_experts: int
    """That may have rows."""

    table: Tensor
    """int32 [4 + 12 * most_experts]."""

    row_weights: Tensor
    """float32 [rows, top_k]: of the chosen experts."""

    active: Tensor
    """[rows * top_k, width]: silu(gate) * up."""

    routing: Routing | None
    """None where the table and the weights never change: a dense MLP."""

    def operations(self, index: int) -> list[Operation]:
        """The kernels of the region of pass `index`."""
        routed = [] if self.routing is None else self._route(self.routing, index)
        return [*routed, *self.after_routing(index)]

    def router(self, routing: Routing, index: int) -> Operation:
        """The product whose parts are the logits of pass `index`."""
        weight = self.problem.weights[index]["router"]
        return routing.router.operation(weight, self.problem.buffers[index].mid_hidden)

    def bias(self, index: int) -> Tensor:
        """What is added to the logits of pass `index`, float32 [rows, experts].

        Raises:
            TypeError: the problem has none.
        """
        bias = self.problem.router_bias
        if bias is None:
            name = self.problem.spec.model.name
            msg = f"{name} has experts, the problem no router bias"
            raise TypeError(msg)
        return bias[index]

    def after_routing(self, index: int) -> list[Operation]:
        """The kernels of pass `index` that read the table."""
        return [self._gate_up(index), self._down(index)]

    def _route(self, routing: Routing, index: int) -> list[Operation]:
        spec = self.problem.spec
        model, pairs = spec.model, spec.rows * self.top_k
        lanes = -(-model.experts // 32)
        defines = (
            ("LANE_EXPERTS", lanes),
            ("SPLITS", routing.router.splits),
            ("MOST_PAIRS", MOST_ROWS * self.top_k),
        )
        choose = self.workshop.operation(
            "top_k",
            Kernel("routing", "top_k", 32, defines),
            (spec.rows, 1, 1),
            (
                routing.router.parts,
                self.bias(index),
                routing.ids[index],
                self.row_weights,
                model.experts,
                self.top_k,
                int(model.normalize_top_k),
            ),
        )
        align = self.workshop.operation(
            "align",
            Kernel("routing", "align", 32 * lanes, defines),
            (1, 1, 1),
            (routing.ids[index], self.table, pairs, model.experts),
        )
        return [self.router(routing, index), choose, align]

    def _gate_up(self, index: int) -> Operation:
        hidden = self.problem.buffers[index].mid_hidden
        weight = self.problem.weights[index]["gate_up"]
        values, scales = self.workshop.operand(weight)
        width = self.active.shape[-1]
        choice = self.workshop.selection.choose("gate_up", self.shape(weight))
        tiles = choice.option("tiles", _UP_TILES)
        return self.workshop.operation(
            "gate_up",
            Kernel(
                "experts",
                f"gate_up_{suffix(weight)}",
                32 * _UP_WARPS,
                (("TILES", tiles), ("UP_DEPTH", choice.option("depth", _UP_DEPTH))),
            ),
            (-(-width // (tiles * _GATED_OUTPUTS)), self.most_experts, 1),
            (
                values,
                scales,
                hidden,
                self.table,
                self.active,
                width,
                hidden.shape[-1],
                self.top_k,
            ),
        )

    def _down(self, index: int) -> Operation:
        buffers = self.problem.buffers[index]
        weight = self.problem.weights[index]["down"]
        values, scales = self.workshop.operand(weight)
        rows, outputs = buffers.out.shape
        inputs = self.active.shape[-1]
        choice = self.workshop.selection.choose("down", self.shape(weight))
        units = units_of(inputs, unit(weight))
        parts = choice.option("parts", down_parts(self.most_experts, units))
        streamed = isinstance(weight, BlockScaled) or units <= _MOST_STREAMED_UNITS
        runs_on = choice.option("runs_on", int(streamed))
        depth = (
            stream_depth(-(-units // parts)) if runs_on else _DOWN_DEPTH[suffix(weight)]
        )
        pairs = rows * self.top_k
        floats = parts * pairs * _ROW_STRIDE + pairs
        return self.workshop.operation(
            "down+sum",
            Kernel(
                "experts",
                f"down_{suffix(weight)}",
                32 * DOWN_WARPS,
                (
                    ("TILES", 1),
                    ("RUNS_ON", runs_on),
                    ("DOWN_DEPTH", choice.option("depth", depth)),
                ),
            ),
            (-(-outputs // TILE_OUTPUTS), 1, 1),
            (
                values,
                scales,
                self.active,
                self.table,
                self.row_weights,
                buffers.mid_residual,
                buffers.out,
                rows,
                self.top_k,
                outputs,
                inputs,
                parts,
                self.most_experts,
            ),
            4 * (floats + self.most_experts * _ENTRY),
        )

    def shape(self, weight: Tensor | BlockScaled) -> dict[str, int | str]:
        """What the time of a product with `weight` depends on."""
        spec = self.problem.spec
        return {
            "weights": "float8_e4m3" if isinstance(weight, BlockScaled) else "bfloat16",
            "rows": spec.rows,
            "experts": self.most_experts,
            "hidden": spec.model.hidden_size,
            "width": self.active.shape[-1],
        }


def make_experts(problem: Problem, workshop: Workshop) -> Experts:
    """Plan the region for `problem`, and make its memory.

    Raises:
        ValueError: it has more pairs of a row and an expert than limits.py allows.
    """
    spec = problem.spec
    if not spec.model.experts:
        return _make_dense(problem, workshop)
    top_k, rows = spec.model.experts_per_token, spec.rows
    if rows * top_k > 32 * DOWN_WARPS:
        msg = f"{rows} rows of {top_k} experts are more pairs than `down` has threads"
        raise ValueError(msg)
    most = min(spec.model.experts, rows * top_k)
    router = plain(problem.weights[0]["router"])
    ids = tuple(
        workshop.empty(rows, top_k, dtype=torch.int32) for _ in range(problem.passes)
    )
    return Experts(
        problem=problem,
        workshop=workshop,
        top_k=top_k,
        most_experts=most,
        table=workshop.empty(_HEAD + most * _ENTRY, dtype=torch.int32),
        row_weights=workshop.empty(rows, top_k),
        active=workshop.empty(rows * top_k, spec.expert_size, dtype=torch.bfloat16),
        routing=Routing(product(workshop, "router", router, rows), ids),
    )


def _make_dense(problem: Problem, workshop: Workshop) -> Experts:
    """A dense MLP: one expert that has all rows, with weight one."""
    spec, device = problem.spec, problem.device
    rows = spec.rows
    entry = [0, rows, 0, 0, *range(rows), *[0] * (MOST_ROWS - rows)]
    table = torch.tensor([1, 0, 0, 0, *entry], dtype=torch.int32, device=device)
    ones = torch.ones(rows, 1, device=device)
    workshop.constants.extend((table, ones))
    return Experts(
        problem=problem,
        workshop=workshop,
        top_k=1,
        most_experts=1,
        table=table,
        row_weights=ones,
        active=workshop.empty(rows, spec.mlp_size, dtype=torch.bfloat16),
        routing=None,
    )
