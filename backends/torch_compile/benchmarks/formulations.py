"""Times the ways in which this backend may be written, on a GPU, region by region.

Usage: ``python backends/torch_compile/benchmarks/formulations.py [--model PRESET]
[--weights DTYPE] [--tp N] [VARIANT ...]``. Each variant is built for the same problem
and captured into CUDA graphs of eight passes, one a region and one for the layer; the
median of 50 launches is printed, in microseconds a pass. NOTES.md keeps the outcome.
"""

import argparse
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, Final
from unittest.mock import patch

import torch

from layerscope.layers.presets import preset
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.reference import BACKEND as REFERENCE
from layerscope.layers.spec import DType, LayerSpec
from layerscope.plugin import (
    BackendSpec,
    BuildContext,
    Step,
    StepShape,
    Waits,
    WholeStep,
)
from layerscope_torch_compile import BACKEND, attention, compiling, products

PASSES: Final = 8
LAUNCHES: Final = 50

VARIANTS: Final[dict[str, tuple[AbstractContextManager[Any], ...]]] = {
    "default": (),
    "whole": (),
    "paged": (patch.object(attention, "FORMULATION", "paged"),),
    "library": (patch.object(products, "LOOP_ELEMENTS", 0),),
    "loops": (
        patch.object(products, "LOOP_ELEMENTS", 1 << 40),
        patch.object(products, "PLAIN_LOOP_ELEMENTS", 1 << 40),
    ),
    "combo": (patch.dict(compiling.OPTIONS, {"combo_kernels": True}),),
    "autotuned": (patch.dict(compiling.OPTIONS, {"max_autotune_pointwise": True}),),
    "tuned": (patch.dict(compiling.OPTIONS, {"coordinate_descent_tuning": True}),),
}
"""What each changes of the backend; ``whole`` turns its switch."""


def build(backend: BackendSpec, problem: Problem, **switches: str) -> Step | WholeStep:
    """The step of `problem`."""
    spec = problem.spec
    abort = torch.zeros(1, dtype=torch.int32, device=problem.device)
    context = BuildContext(problem=problem, waits=Waits(abort=abort), switches=switches)
    shape = StepShape(spec.requests, spec.tokens_per_request, spec.context)
    step = backend.build(context).plan(shape)
    if step is None:
        msg = f"{backend.name} declined its own problem"
        raise RuntimeError(msg)
    return step


def parts(problem: Problem, step: Step | WholeStep) -> dict[str, Callable[[int], None]]:
    """What is timed, by name: a function of the pass."""
    if isinstance(step, WholeStep):
        return {"layer": step.run_layer}
    regions = {str(name): partial(step.run, name) for name in problem.spec.regions}

    def layer(index: int) -> None:
        for run in regions.values():
            run(index)

    return {**regions, "layer": layer}


def microseconds(run: Callable[[int], None]) -> float:
    """Median time of a pass in a graph of all passes."""
    run(0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for index in range(PASSES):
            run(index)
    events = [torch.cuda.Event(enable_timing=True) for _ in range(LAUNCHES + 1)]
    for _ in range(3):
        graph.replay()
    for event in events[:-1]:
        event.record()
        graph.replay()
    events[-1].record()
    torch.cuda.synchronize()
    spans_ms: list[float] = [a.elapsed_time(b) for a, b in pairwise(events)]
    return median(spans_ms) * 1e3 / PASSES


def main() -> None:
    """Time the variants that are named, or all."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "variants", nargs="*", default=list(VARIANTS), metavar="VARIANT"
    )
    parser.add_argument("--model", default="qwen3-30b-a3b")
    parser.add_argument("--weights", type=DType, default=DType.BFLOAT16)
    parser.add_argument("--tp", type=int, default=1)
    flags = parser.parse_args()
    spec = LayerSpec(
        model=preset(flags.model),
        weight_dtype=flags.weights,
        tp=flags.tp,
        shard_shaped=flags.tp > 1,
    )
    options = ProblemOptions(passes=PASSES, steps=1, device="cuda")
    problem = make_problem(spec, options)
    for name in ["reference", *flags.variants]:
        measure(name, problem)


def measure(name: str, problem: Problem) -> None:
    """Build a variant, or the reference, and print its times."""
    backend = REFERENCE if name == "reference" else BACKEND
    switches = {"whole_layer": "on"} if name == "whole" else {}
    with ExitStack() as stack:
        for change in VARIANTS.get(name, ()):
            stack.enter_context(change)
        start_s = time.perf_counter()
        step = build(backend, problem, **switches)
        built_s = time.perf_counter() - start_s
        times = {part: microseconds(run) for part, run in parts(problem, step).items()}
    shown = "  ".join(f"{part} {value:7.1f}" for part, value in times.items())
    print(f"{name:10} built in {built_s:5.1f} s  {shown}", flush=True)


if __name__ == "__main__":
    main()
