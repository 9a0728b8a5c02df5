"""The backend as a whole on a GPU: the contract, captured graphs, drafts."""

import pytest

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

import torch

from backends.standard.tests.bench import Bench, poison
from layerscope.graphs.cuda import GraphPlayer
from layerscope.graphs.replay import Body
from layerscope.layers.draft import DraftOptions, make_draft, poison_draft, shortfall
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.feed import advance
from layerscope.layers.presets import preset
from layerscope.layers.problem import Problem
from layerscope.layers.problem import poison as poison_results
from layerscope.layers.reference import reference_output, relative_error
from layerscope.layers.spec import DType, LayerSpec
from layerscope.plugin import DraftContext, Waits
from layerscope.regions import Region, layer_pass, region
from layerscope.testing import check_backend
from layerscope_standard import BACKEND
from layerscope_standard.backend import ROLES, make_workshop
from layerscope_standard.layer import LayerStep, make_layer

BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3


def spec_of(model: str, weights: DType, ranks: int, drafts: int) -> LayerSpec:
    """A slice of a real model's layer behind an odd context."""
    return LayerSpec(
        model=preset(model),
        weight_dtype=weights,
        draft_tokens=drafts,
        context=1_001,
        tp=ranks,
        shard_shaped=ranks > 1,
    )


def test_the_backend_keeps_the_contract_on_small_layers() -> None:
    """All small layers of bfloat16 activations, with both values of the switch."""
    found = check_backend(BACKEND, device="cuda")
    assert all("needs dtype bfloat16" in reason for reason in found.left_out)


@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize(
    ("model", "ranks", "drafts"),
    [("qwen3-30b-a3b", 4, 5), ("qwen3-30b-a3b", 8, 7), ("llama-3.1-8b", 4, 5)],
)
def test_the_backend_keeps_the_contract_on_real_layers(
    model: str, weights: DType, ranks: int, drafts: int
) -> None:
    """Slices of two models, in both types of weights."""
    spec = spec_of(model, weights, ranks, drafts)
    check_backend(BACKEND, device="cuda", specs=[spec])


def body_of(problem: Problem, step: LayerStep) -> Body:
    """All passes, region by region."""

    def play(passes: int) -> None:
        for index in range(passes):
            with layer_pass(index):
                for name in problem.spec.regions:
                    with region(name):
                        step.run(name, index)

    return play


@pytest.mark.parametrize("pdl", ["stock", "off"])
def test_edges_are_programmatic_where_the_switch_says_so(
    bench: Bench, pdl: str
) -> None:
    """Every kernel has its role, and every edge the kind that the switch says."""
    spec = spec_of("qwen3-30b-a3b", BF16, 8, 5)
    problem, player = bench.problem(spec), GraphPlayer()
    built = make_layer(problem, make_workshop(bench.device, pdl))
    replay = player.capture(body_of(problem, built.step), problem.passes)
    assert [node.role for node in replay.nodes] == [*ROLES, *ROLES]
    assert {link.programmatic for link in replay.links} == {pdl == "stock"}


def test_nothing_is_read_before_it_is_written(bench: Bench) -> None:
    """With memory between kernels poisoned, many replays on new inputs are right."""
    spec = spec_of("qwen3-30b-a3b", BF16, 8, 5)
    problem, player = bench.problem(spec), GraphPlayer()
    built = make_layer(problem, make_workshop(bench.device, "stock"))
    replay = player.capture(body_of(problem, built.step), problem.passes)
    for _ in range(20):
        advance(problem.feed)
        poison_results(problem)
        poison(built.workshop)
        torch.cuda.synchronize()
        replay.launch()
        player.wait()
        for index in range(problem.passes):
            want = reference_output(problem, index)
            error = relative_error(problem.buffers[index].out, want)
            assert error <= BACKEND.numerics.bfloat16


@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize(("requests", "vocabulary"), [(1, 37_984), (3, 3_001)])
def test_a_captured_draft_takes_the_best_tokens(
    weights: DType, requests: int, vocabulary: int
) -> None:
    """All tokens of a pass, ties to the lowest id, chained from pass to pass."""
    spec = DraftSpec(
        model="small",
        vocab_size=vocabulary,
        requests=requests,
        weight_dtype=weights,
    )
    problem = make_draft(spec, DraftOptions(passes=3, steps=2, device="cuda"))
    assert BACKEND.build_draft is not None
    waits = Waits.on(problem.device)
    built = BACKEND.build_draft(DraftContext(problem=problem, waits=waits))
    step = built.plan(spec)
    assert step is not None

    def play(passes: int) -> None:
        with region(Region.DRAFT):
            for index in range(passes):
                step.run(index)

    player = GraphPlayer()
    replay = player.capture(play, 3)
    for _ in range(4):
        advance(problem.feed)
        poison_draft(problem)
        torch.cuda.synchronize()
        replay.launch()
        player.wait()
        falls = [shortfall(problem, index) for index in range(3)]
        assert max(falls) <= BACKEND.numerics.draft_logit
