"""Captured graphs whose kernels are delayed at random, thousands of times.

As for the standard chain; ``LAYERSCOPE_REPLAYS=200`` makes them short.
"""

import pytest

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from dataclasses import fields, replace
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
from backends.standard.tests.gpu.test_delays_cuda import draft as standard_draft
from backends.standard.tests.gpu.test_delays_cuda import spec_of
from layerscope.layers.draft import DraftOptions, make_draft
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.problem import Problem
from layerscope.layers.spec import DType
from layerscope.plugin import Waits
from layerscope_nvidia_mega.draft import BuiltDraft, Room
from layerscope_nvidia_mega.layer import make_layer
from layerscope_nvidia_mega.switches import OFF, Mechanisms
from layerscope_standard.backend import make_workshop
from layerscope_standard.workshop import Workshop

BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3

NAMES: Final = tuple(
    each.name for each in fields(Mechanisms) if each.name != "one_launch_draft"
)
TIMING: Final = ("early_trigger", "weight_prefetch", "kv_gather", "early_experts")
"""Mechanisms that change when something is done, and no bit."""


def layer(problem: Problem, workshop: Workshop, *off: str) -> Chain:
    """The layer with all mechanisms but some."""
    mechanisms = Mechanisms.of(dict.fromkeys(off, OFF))
    built = make_layer(problem, workshop, mechanisms)
    return layer_chain(problem, built.workshop, built.step)


@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize("off", [None, *NAMES])
def test_a_delayed_layer_is_right(
    bench: Bench, off: str | None, weights: DType
) -> None:
    """With all mechanisms, and with each left out: no bit of any replay.

    Right is what the same kernels give one after another, all of them stock.
    """
    others = () if off is None else (off,)
    problem = problem_of(spec_of(weights), bench.device)
    right = layer(problem, make_workshop(bench.device, "off"), *TIMING, *others)
    tried = layer(problem, delayed(bench.workshop()), *others)
    replays = REPLAYS if off is None else REPLAYS // len(NAMES)
    assert count_wrong(right, tried, replays) == 0


@pytest.mark.parametrize("weights", [BF16, FP8])
@pytest.mark.parametrize("vocabulary", [37_984, 3_001])
def test_a_delayed_draft_is_right(
    bench: Bench, vocabulary: int, weights: DType
) -> None:
    """All tokens of the one launch are those of the standard chain, ties too."""
    spec = DraftSpec(
        model="small", vocab_size=vocabulary, requests=3, weight_dtype=weights
    )
    options = DraftOptions(passes=PASSES, steps=STEPS, device=str(bench.device))
    problem, waits = make_draft(spec, options), Waits.on(bench.device)
    workshop = delayed(bench.workshop())
    built = BuiltDraft(problem, workshop, waits, Room.on(bench.device))
    step = built.plan(spec)
    assert step is not None
    right = standard_draft(problem, make_workshop(bench.device, "off"))
    # What blocks hand to each other is told apart by launches, and must not be ruined.
    kept = replace(workshop, scratch=[])
    assert count_wrong(right, draft_chain(problem, kept, step), REPLAYS) == 0
    assert waits.abort.tolist() == [0]


@pytest.mark.parametrize(
    ("name", "off"),
    [
        ("norm_product_bf16", ()),
        ("rope_attention", ()),
        ("route", ()),
    ],
)
def test_a_wait_that_is_left_out_is_found(
    bench: Bench, name: str, off: tuple[str, ...]
) -> None:
    """In every kernel of this package; else the tests above would show nothing."""
    problem = problem_of(spec_of(BF16), bench.device)
    right = layer(problem, make_workshop(bench.device, "off"), *TIMING, *off)
    check_control(
        right, lambda made: layer(problem, made, *off), bench.workshop(), name
    )
