"""What must hold for the kernels of the experts on any bench."""

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from backends.standard.tests.bench import Bench, poison
from backends.standard.tests.checks import REJECT, adversarial, logit_parts
from layerscope.layers.spec import LayerSpec
from layerscope_nvidia_mega import routing
from layerscope_nvidia_mega.switches import Macros, Mechanisms
from layerscope_standard.experts import Experts, make_experts
from layerscope_standard.selection import Choice


def check_route(bench: Bench, spec: LayerSpec, splits: int) -> None:
    """Bit for bit the experts, weights and table of top_k and align after it."""
    workshop = bench.workshop()
    choice = Choice(options={"splits": splits})
    selection = workshop.selection.overridden("router", choice)
    workshop = replace(workshop, selection=selection)
    problem = bench.problem(spec)
    made = make_experts(problem, workshop)
    assert made.routing is not None
    assert problem.router_bias is not None
    parts, ids = made.routing.router.parts, made.routing.ids[1]
    separate = made.operations(1)[1:3]
    fused = routing.operations(made, 1)[1]
    draw = torch.Generator().manual_seed(21)
    for seed, levels in enumerate((0, 1, 2, 9, 10**6)):
        poison(workshop)
        given = logit_parts(parts.shape, levels, draw)
        rows, experts = given.shape[1:]
        given[-1] += adversarial(rows, experts, levels, seed)
        given = given.to(bench.device)
        parts.copy_(given)
        rejected = torch.rand(parts.shape[1:], generator=draw) < 0.2
        problem.router_bias[1].copy_(torch.where(rejected, REJECT, -0.0))
        for operation in separate:
            operation.enqueue()
        bench.wait()
        want = [each.clone() for each in (ids, made.row_weights, made.table)]
        poison(workshop)
        parts.copy_(given)
        fused.enqueue()
        bench.wait()
        assert want[2][0] == len(want[0].unique())
        for found, right in zip((ids, made.row_weights, made.table), want, strict=True):
            assert torch.equal(found, right)


def _outputs(
    bench: Bench, spec: LayerSpec, turns: Mapping[str, Macros]
) -> list[Tensor]:
    """What both passes give on the same inputs, with kernels in these turns."""
    workshop = replace(bench.workshop(), turns=turns)
    problem = bench.problem(spec)
    made: Experts = make_experts(problem, workshop)
    outputs = []
    for index in (0, 1):
        buffers = problem.buffers[index]
        shape = tuple(buffers.mid_hidden.shape)
        buffers.mid_hidden.copy_(bench.normal(*shape, seed=31 + index))
        buffers.mid_residual.copy_(bench.normal(*shape, seed=33 + index))
        poison(workshop)
        for operation in made.operations(index):
            operation.enqueue()
        bench.wait()
        outputs.append(buffers.out.clone())
    return outputs


def check_early_experts(bench: Bench, spec: LayerSpec) -> None:
    """Starting and loading early changes no bit."""
    stock = _outputs(bench, spec, {})
    early = _outputs(bench, spec, Mechanisms().turns())
    for found, want in zip(early, stock, strict=True):
        assert bool(want.isfinite().all())
        assert torch.equal(found, want)
