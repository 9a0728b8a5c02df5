"""Captured graphs whose kernels are delayed at random, thousands of times.

``LAYERSCOPE_REPLAYS=200`` makes them short.
"""

import pytest

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from dataclasses import replace
from typing import Final

from backends.standard.tests.bench import Bench
from backends.standard.tests.delays import (
    PASSES,
    REPLAYS,
    STEPS,
    Chain,
    check_control,
    count_wrong,
    delayed,
    draft_chain,
    layer_chain,
    problem_of,
)
from layerscope.layers.draft import DraftOptions, DraftProblem, make_draft
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.presets import preset
from layerscope.layers.problem import Problem
from layerscope.layers.spec import DType, LayerSpec
from layerscope_standard.backend import DRAFT_ROLES, ROLES, make_workshop
from layerscope_standard.draft import BuiltDraft
from layerscope_standard.layer import make_layer
from layerscope_standard.selection import Selection
from layerscope_standard.workshop import Workshop

BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3

AT_ENTRY: Final = ("TRIGGER", 1)
LOADED_EARLY: Final = (
    *("norm", "qkv", "rope_kv_write", "attention"),
    *("o_proj", "post_norm", "router"),
)
EARLY: Final = {
    **dict.fromkeys((*ROLES, *DRAFT_ROLES), (AT_ENTRY,)),
    **dict.fromkeys(LOADED_EARLY, (AT_ENTRY, ("LOADS_EARLY", 1))),
}
"""All trigger before they wait: nothing but the waits keeps kernels in order."""


def spec_of(weights: DType) -> LayerSpec:
    """One rank's slice of a real layer behind an odd context."""
    return LayerSpec(
        model=preset("qwen3-30b-a3b"),
        weight_dtype=weights,
        context=1_001,
        tp=8,
        shard_shaped=True,
    )


def layer(problem: Problem, workshop: Workshop) -> Chain:
    """The standard layer, made with `workshop`."""
    return layer_chain(problem, workshop, make_layer(problem, workshop).step)


def draft(problem: DraftProblem, workshop: Workshop) -> Chain:
    """The standard draft, made with `workshop`."""
    step = BuiltDraft(problem, workshop).plan(problem.spec)
    assert step is not None
    return draft_chain(problem, workshop, step)


@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize("turns", ["stock", "early"])
def test_a_delayed_layer_is_right(bench: Bench, turns: str, weights: DType) -> None:
    """As it is, and with all kernels triggering at entry: no bit of any replay."""
    problem = problem_of(spec_of(weights), bench.device)
    workshop = bench.workshop()
    if turns == "early":
        workshop = replace(workshop, turns=EARLY)
    tried = layer(problem, delayed(workshop))
    right = layer(problem, make_workshop(bench.device, "off"))
    assert count_wrong(right, tried, REPLAYS) == 0


@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize("turns", ["stock", "early"])
def test_a_delayed_draft_is_right(bench: Bench, turns: str, weights: DType) -> None:
    """All tokens, ties too."""
    spec = DraftSpec(model="small", vocab_size=37_984, requests=3, weight_dtype=weights)
    options = DraftOptions(passes=PASSES, steps=STEPS, device=str(bench.device))
    problem = make_draft(spec, options)
    workshop = bench.workshop()
    if turns == "early":
        workshop = replace(workshop, turns=EARLY)
    tried = draft(problem, delayed(workshop))
    right = draft(problem, make_workshop(bench.device, "off"))
    assert count_wrong(right, tried, REPLAYS) == 0


@pytest.mark.parametrize(
    "name",
    [
        *("norm_rows", "product_bf16", "rope_kv_write", "attention", "combine"),
        *("add_norm_rows", "top_k", "align", "gate_up_bf16", "down_bf16"),
    ],
)
def test_a_wait_that_is_left_out_is_found(bench: Bench, name: str) -> None:
    """In any kernel; else the tests above would show nothing."""
    problem = problem_of(spec_of(BF16), bench.device)
    plain = replace(make_workshop(bench.device, "off"), selection=Selection())
    workshop = replace(bench.workshop(), selection=Selection(), turns=EARLY)
    check_control(
        layer(problem, plain), lambda made: layer(problem, made), workshop, name
    )


def test_a_draft_without_a_wait_is_found(bench: Bench) -> None:
    """Its tokens are chosen from the token before that of an earlier replay."""
    options = DraftOptions(passes=PASSES, steps=STEPS, device=str(bench.device))
    problem = make_draft(DraftSpec(model="small", vocab_size=37_984), options)
    right = draft(problem, make_workshop(bench.device, "off"))
    workshop = replace(bench.workshop(), turns=EARLY)
    name = "draft_token_bf16"
    check_control(right, lambda made: draft(problem, made), workshop, name)
