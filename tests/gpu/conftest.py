"""A small problem on the GPU, shared by the tests of one module."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch

from layerscope.graphs.players import head_for
from layerscope.graphs.replay import Body
from layerscope.layers.presets import preset
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.spec import LayerSpec
from layerscope.regions import Region, layer_pass, region
from layerscope.registry import dispatch
from layerscope.study import Arm

if TYPE_CHECKING:
    from layerscope.graphs.cuda import GraphPlayer

PASSES = 4


@pytest.fixture(scope="module")
def problem() -> Iterator[Problem]:
    spec = LayerSpec(model=preset("tiny-moe"), context=512)
    options = ProblemOptions(passes=PASSES, steps=4, device="cuda")
    with torch.no_grad():
        yield make_problem(spec, options)


@pytest.fixture(scope="module")
def body(problem: Problem) -> Body:
    steps = dispatch(Arm(backend="reference"), problem).steps
    head = head_for(problem.feed)

    def play(passes: int) -> None:
        with region(Region.OTHER):
            head()
        for index in range(passes):
            with layer_pass(index):
                for name in problem.spec.regions:
                    with region(name):
                        steps[name].run(name, index)

    return play


@pytest.fixture(scope="module")
def player() -> "GraphPlayer":
    from layerscope.graphs.cuda import GraphPlayer  # noqa: PLC0415 (needs bindings)

    return GraphPlayer()
