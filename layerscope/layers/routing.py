"""Pinned routing: which experts the rows of a pass choose, the same for every arm.

Routers compute as usual and add a bias in float32: 0 for the planned experts, `REJECT`
for all others. The choice then holds by a wide margin, the logits of the chosen keep
their precision, and their normalised weights are the natural ones.
"""

from typing import Final

import torch
from torch import Tensor

from layerscope.layers.seeding import generator
from layerscope.layers.spec import LayerSpec, Routing

REJECT: Final = -1e4
"""Bias of an expert that was not planned; exp(REJECT) is 0 in float32."""


def expert_plan(spec: LayerSpec, passes: int, steps: int, seed: int) -> Tensor:
    """The experts of every row, int64 [steps, passes, rows, top_k] on the CPU.

    UNIFORM: each row draws its experts independently. CORRELATED: each draft row keeps
    half (rounded down) of the experts of the row before it in its request, and draws
    the rest among those that row did not have. The plan of a (step, pass) depends on
    nothing but the seed and the two indices.
    """
    draws = [
        [_plan_pass(spec, _generator(seed, step, index)) for index in range(passes)]
        for step in range(steps)
    ]
    return torch.stack([torch.stack(row) for row in draws])


def _generator(seed: int, step: int, pass_index: int) -> torch.Generator:
    return generator(torch.device("cpu"), seed, "routing", step, pass_index)


def _plan_pass(spec: LayerSpec, draw: torch.Generator) -> Tensor:
    model = spec.model
    top_k, correlated = model.experts_per_token, spec.routing is Routing.CORRELATED
    scores = torch.rand(spec.rows, model.experts, generator=draw)
    rows: list[Tensor] = []
    for row, score in enumerate(scores):
        if correlated and row % spec.tokens_per_request:
            before = rows[-1]
            order = torch.randperm(top_k, generator=draw)
            # Scores are in [0, 1): kept experts come first, dropped ones last, and
            # those are reached only where there are too few others.
            score[before] -= 1.0
            score[before[order[: top_k // 2]]] += 2.0
        rows.append(score.topk(top_k).indices)
    return torch.stack(rows)


def routing_bias(plan: Tensor, experts: int, device: torch.device) -> Tensor:
    """The router bias that pins `plan`, float32 [..., rows, experts] on `device`."""
    index = plan.to(device)
    shape = (*plan.shape[:-1], experts)
    bias = torch.full(shape, REJECT, dtype=torch.float32, device=device)
    return bias.scatter_(-1, index, 0.0)


def is_planned(chosen: Tensor, planned: Tensor) -> bool:
    """Whether every row chose its planned experts, in whatever order.

    Args:
        chosen: integers [rows, top_k], on any device.
        planned: int64 [rows, top_k] of one step and pass of an `expert_plan`.
    """
    rows = chosen.cpu().long().sort(dim=-1).values
    return torch.equal(rows, planned.sort(dim=-1).values)


def distinct_experts(plan: Tensor) -> list[list[int]]:
    """Distinct experts over all rows, [steps][passes], of a plan from `expert_plan`."""
    return [[int(rows.unique().numel()) for rows in step] for step in plan]
