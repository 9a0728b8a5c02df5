from collections import Counter

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")
pytest.importorskip("triton", reason="triton is not installed")

from backends.torch_compile.tests.small import (
    Compiled,
    build_on,
    draft_context_of,
    problem_of,
)
from layerscope.graphs.cuda import GraphPlayer
from layerscope.graphs.replay import Body
from layerscope.layers.draft import DraftOptions, make_draft, poison_draft, shortfall
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.feed import advance
from layerscope.layers.presets import preset
from layerscope.layers.problem import poison
from layerscope.layers.reference import BACKEND as REFERENCE
from layerscope.layers.reference import reference_output
from layerscope.layers.spec import DType, LayerSpec
from layerscope.plugin import WholeStep
from layerscope.regions import Region, layer_pass, region
from layerscope_torch_compile import BACKEND
from layerscope_torch_compile.attention import formulation

SPEC = LayerSpec(
    model=preset("tiny-moe"),
    weight_dtype=DType.FLOAT8_E4M3,
    requests=2,
    draft_tokens=3,
    context=500,
)
"""Two requests, whose pages lie between each other's."""


@pytest.fixture(scope="module")
def player() -> GraphPlayer:
    return GraphPlayer()


@pytest.fixture(scope="module", params=["off", "on"])
def compiled(request: pytest.FixtureRequest) -> Compiled:
    """A layer with flex attention over pages, by region and as a whole."""
    problem = problem_of(SPEC, "cuda")
    assert formulation(SPEC, problem.device) == "flex"
    return build_on(BACKEND, problem, whole_layer=request.param)


def body_of(layer: Compiled) -> Body:
    """All passes, region by region where the step has them."""
    step = layer.step

    def play(passes: int) -> None:
        for index in range(passes):
            with layer_pass(index):
                if isinstance(step, WholeStep):
                    with region(Region.OTHER):
                        step.run_layer(index)
                    continue
                for name in layer.problem.spec.regions:
                    with region(name):
                        step.run(name, index)

    return play


def test_a_captured_layer_is_right_on_new_inputs(
    compiled: Compiled, player: GraphPlayer
) -> None:
    """Nothing is compiled at capture, and replays compute what they are given."""
    problem = compiled.problem
    replay = player.capture(body_of(compiled), problem.passes)
    for _ in range(problem.steps):
        advance(problem.feed)
        poison(problem)
        torch.cuda.synchronize()
        replay.launch()
        player.wait()
        for index in range(problem.passes):
            expected = reference_output(problem, index)
            error = problem.buffers[index].out.float() - expected
            assert error.norm() / expected.norm() <= BACKEND.numerics.bfloat16


def test_every_region_has_fewer_kernels_than_the_reference(player: GraphPlayer) -> None:
    """Every node is a kernel, and every region has fewer of them."""
    problem = problem_of(SPEC, "cuda")
    counts = []
    for backend in (BACKEND, REFERENCE):
        replay = player.capture(body_of(build_on(backend, problem)), 2)
        assert {node.kind for node in replay.nodes} == {"kernel"}
        counts.append(Counter(node.region for node in replay.nodes))
    ours, theirs = counts
    assert ours.keys() == theirs.keys() == set(SPEC.regions)
    assert all(ours[name] < theirs[name] for name in SPEC.regions)


@pytest.mark.parametrize("weight_dtype", [DType.BFLOAT16, DType.FLOAT8_E4M3])
def test_a_captured_draft_takes_the_best_tokens(
    weight_dtype: DType, player: GraphPlayer
) -> None:
    """All tokens of a pass, ties to the lowest id, chained from pass to pass."""
    spec = DraftSpec(
        model="small", vocab_size=3_001, requests=2, weight_dtype=weight_dtype
    )
    problem = make_draft(spec, DraftOptions(passes=3, steps=2, device="cuda"))
    assert BACKEND.build_draft is not None
    step = BACKEND.build_draft(draft_context_of(problem)).plan(spec)
    assert step is not None

    def play(passes: int) -> None:
        with region(Region.DRAFT):
            for index in range(passes):
                step.run(index)

    replay = player.capture(play, 3)
    for _ in range(2):
        advance(problem.feed)
        poison_draft(problem)
        torch.cuda.synchronize()
        replay.launch()
        player.wait()
        falls = [shortfall(problem, index) for index in range(3)]
        assert max(falls) <= BACKEND.numerics.draft_logit
