"""A whole layer on the emulated device, with all mechanisms and with each alone."""

from pathlib import Path

import pytest
import torch

from backends.standard.tests.bench import MOE, Bench, poison, small
from layerscope.layers.problem import Problem
from layerscope.layers.reference import reference_output, relative_error
from layerscope.layers.spec import DType, LayerSpec
from layerscope_nvidia_mega.backend import BACKEND, BITWISE
from layerscope_nvidia_mega.layer import make_layer
from layerscope_nvidia_mega.switches import OFF, ON, Mechanisms
from layerscope_standard.layer import make_layer as make_standard

NAMES = [switch.name for switch in BACKEND.switches]
NONE = dict.fromkeys(NAMES, OFF)


def output(bench: Bench, problem: Problem, switches: dict[str, str]) -> torch.Tensor:
    """Of the second pass, with memory between kernels poisoned."""
    built = make_layer(problem, bench.workshop(), Mechanisms.of(switches))
    poison(built.workshop)
    for name in problem.spec.regions:
        built.step.run(name, 1)
    bench.wait()
    return problem.buffers[1].out.clone()


SPECS = [
    small(MOE, context=130),
    small(MOE, context=20, weight_dtype=DType.FLOAT8_E4M3, draft_tokens=0),
]


@pytest.mark.parametrize("spec", SPECS, ids=["bf16", "fp8"])
def test_all_off_is_the_standard_chain(
    bench: Bench, spec: LayerSpec, libraries: Path
) -> None:
    """Kernel for kernel, and bit for bit."""
    problem = bench.problem(spec)
    standard = make_standard(problem, bench.workshop())
    built = make_layer(problem, bench.workshop(), Mechanisms.of(NONE))
    for name in problem.spec.regions:
        roles, own = (
            [operation.role for operation in each.step.operations[name][1]]
            for each in (standard, built)
        )
        assert own == roles
        standard.step.run(name, 1)
    want = problem.buffers[1].out.clone()
    assert libraries.is_dir()
    assert torch.equal(output(bench, problem, NONE), want)


@pytest.mark.parametrize("spec", SPECS, ids=["bf16", "fp8"])
def test_every_mechanism_computes_the_layer(bench: Bench, spec: LayerSpec) -> None:
    """Alone and with all others; bit for bit where only the time of things changes."""
    problem = bench.problem(spec)
    plain, whole = output(bench, problem, NONE), output(bench, problem, {})
    right = reference_output(problem, 1)
    for found in (plain, whole):
        assert relative_error(found, right) <= BACKEND.numerics.bfloat16
    for name in NAMES:
        one = output(bench, problem, NONE | {name: ON})
        others = output(bench, problem, {name: OFF})
        if name in BITWISE:
            assert torch.equal(one, plain), name
            assert torch.equal(others, whole), name
        for found in (one, others):
            assert relative_error(found, right) <= BACKEND.numerics.bfloat16
