"""Small layers and what the tests do with them."""

from dataclasses import dataclass

import msgspec
import torch
from torch import Tensor

from layerscope.layers.draft import DraftProblem
from layerscope.layers.problem import Problem, ProblemOptions, make_problem, poison
from layerscope.layers.reference import reference_output
from layerscope.layers.spec import DType, Family, LayerSpec, ModelShape
from layerscope.plugin import (
    BackendSpec,
    BuildContext,
    DraftContext,
    Step,
    StepShape,
    Waits,
    WholeStep,
)

MOE = ModelShape(
    name="small-moe",
    family=Family.QWEN3_MOE,
    layers=1,
    hidden_size=160,
    query_heads=4,
    kv_heads=2,
    head_dim=16,
    rms_norm_eps=1e-6,
    rope_theta=1e4,
    experts=8,
    experts_per_token=3,
    expert_size=144,
)
"""Neither the width of the layer nor that of an expert is a multiple of a block."""

DENSE = ModelShape(
    name="small-dense",
    family=Family.LLAMA,
    layers=1,
    hidden_size=48,
    query_heads=6,
    kv_heads=2,
    head_dim=16,
    rms_norm_eps=1e-5,
    rope_theta=5e5,
    mlp_size=96,
)


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


def problem_of(spec: LayerSpec, device: str = "cpu") -> Problem:
    """Three passes with inputs for two steps."""
    return make_problem(spec, ProblemOptions(passes=3, steps=2, device=device))


def context_of(problem: Problem, **switches: str) -> BuildContext:
    """What a backend builds `problem` from."""
    return BuildContext(problem=problem, waits=_waits(problem), switches=switches)


def draft_context_of(problem: DraftProblem) -> DraftContext:
    """What a backend builds the draft `problem` from."""
    return DraftContext(problem=problem, waits=_waits(problem))


def _waits(problem: Problem | DraftProblem) -> Waits:
    return Waits(abort=torch.zeros(1, dtype=torch.int32, device=problem.device))


def shape_of(spec: LayerSpec) -> StepShape:
    """The step that `spec` runs."""
    return StepShape(spec.requests, spec.tokens_per_request, spec.context)


@dataclass(frozen=True)
class Compiled:
    """A step and its problem, shared by the tests of a module."""

    problem: Problem
    step: Step | WholeStep

    def run(self, index: int) -> Tensor:
        """Run a pass; its output."""
        if isinstance(self.step, WholeStep):
            self.step.run_layer(index)
        else:
            for region in self.problem.spec.regions:
                self.step.run(region, index)
        return self.problem.buffers[index].out

    def error(self) -> float:
        """The worst relative error of all passes, after everything was poisoned."""
        poison(self.problem)
        return max(self._error(index) for index in range(self.problem.passes))

    def _error(self, index: int) -> float:
        expected = reference_output(self.problem, index, torch.float64)
        error = (self.run(index).double() - expected).norm() / expected.norm()
        return float(error.nan_to_num(torch.inf))


def build(backend: BackendSpec, spec: LayerSpec, **switches: str) -> Compiled:
    """`backend`, built for a problem of `spec`."""
    return build_on(backend, problem_of(spec), **switches)


def build_on(backend: BackendSpec, problem: Problem, **switches: str) -> Compiled:
    """`backend`, built for `problem`."""
    built = backend.build(context_of(problem, **switches))
    step = built.plan(shape_of(problem.spec))
    assert step is not None
    return Compiled(problem, step)
