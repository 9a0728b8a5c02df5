"""Layers in lines of kernels: planted ones are found, others are not made up."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from layerscope.analyze.stacks import find_stacks
from tests.analyze.planted import FEEDS, MIXERS, Model, line, models, plain


def found(model: Model, *, cores: bool = True) -> bool:
    """Whether exactly the layers of `model` are found in what it runs."""
    names, starts, end = model.kernels()
    stacks = find_stacks(line(names, cores=cores))
    return [(stack.starts.tolist(), stack.end) for stack in stacks] == [(starts, end)]


@given(models())
@settings(max_examples=150, deadline=None)
def test_planted_layers_are_found(model: Model) -> None:
    """Whatever the structure: each layer's first kernel and the last one's end."""
    assert found(model)


@given(models(), st.integers(2, 5))
@settings(max_examples=50, deadline=None)
def test_each_of_several_stacks_is_found(model: Model, steps: int) -> None:
    """Steps one after another, with something between their layers, come apart."""
    known = replace(
        model,
        prologue=[f"input_{each}" for each in range(6)],
        epilogue=[f"sample_{each}" for each in range(6)],
        extra={},
    )
    names, starts, end = known.kernels()
    stacks = find_stacks(line(names * steps), several=True)
    assert [(stack.starts.tolist(), stack.end) for stack in stacks] == [
        ([start + step * len(names) for start in starts], end + step * len(names))
        for step in range(steps)
    ]


@pytest.mark.parametrize("mixer", ["full", "sliding", "qk_norm"])
@pytest.mark.parametrize("feed", sorted(FEEDS))
def test_equal_layers_need_no_core(mixer: str, feed: str) -> None:
    """Repetition alone shows layers of one kind."""
    assert found(plain(12, mixer, feed), cores=False)


def test_near_equal_layers_need_no_core() -> None:
    """Full and sliding attention in turn are a layer each, not one of double length."""
    layers = [("full" if number % 2 else "sliding", "experts") for number in range(12)]
    assert found(Model(layers), cores=False)


def test_dense_and_expert_layers_in_turn() -> None:
    """Cores of attention tell layers apart that have only attention in common."""
    layers = [("full", "experts" if number % 2 else "dense") for number in range(12)]
    assert found(Model(layers))


def test_hybrids_need_no_core_of_linear_attention() -> None:
    """Layers whose core is not recognised are found by what they have in common."""
    kinds = ("linear", "linear", "linear", "full")
    model = Model([(kinds[number % 4], "experts") for number in range(16)])
    names, starts, end = model.kernels()
    known = line(names)
    attention = np.array([name == "core_full" for name in names])
    stacks = find_stacks(replace(known, is_core=attention))
    assert [(stack.starts.tolist(), stack.end) for stack in stacks] == [(starts, end)]


def test_two_layers_with_cores() -> None:
    """Where cores of attention are known, two layers are enough."""
    assert found(plain(2))
    assert not found(plain(2), cores=False)


def test_draft_layer_is_no_layer_of_the_model() -> None:
    """The layer of a draft model, behind a head of the model, is not counted."""
    model = plain(16)
    names, starts, end = model.kernels()
    draft = ["embed", "rms_norm", "rms_norm", "concat", "fc", "rms_norm"]
    draft += [*MIXERS["full"], "out", "fused_add_rms_norm", *FEEDS["dense"]]
    draft += ["fused_add_rms_norm", "lm_head", "argmax"]
    (stack,) = find_stacks(line([*names, *draft]))
    assert (stack.starts.tolist(), stack.end) == (starts, end)


def test_norm_of_single_operations() -> None:
    """A layer begins with the first of them, after the add of the layer before."""
    norm = ["pow", "mean", "eps", "rsqrt", "scale", "weight"]
    layer = [*norm, "qkv", "core_full", "out", "add", *norm, *FEEDS["dense"], "add"]
    names = ["embed", *layer * 6, *norm, "lm_head"]
    (stack,) = find_stacks(line(names))
    assert stack.starts.tolist() == list(range(1, 1 + 6 * len(layer), len(layer)))
    assert stack.end == 1 + 6 * len(layer)


def test_loop_within_a_layer_is_no_layer() -> None:
    """Experts one after another are turns of a loop; the layer is what holds it."""
    expert = ["gather", "up", "act", "down_experts", "scatter"]
    layer = ["rms_norm", *MIXERS["full"], "out", "rms_norm", "router", *expert * 8]
    names = ["embed", *layer * 6, "rms_norm", "lm_head"]
    (stack,) = find_stacks(line(names))
    assert stack.starts.tolist() == list(range(1, 1 + 6 * len(layer), len(layer)))
    assert stack.end == 1 + 6 * len(layer)


@given(st.lists(st.sampled_from("abcdefgh"), max_size=60))
@settings(max_examples=150, deadline=None)
def test_layers_do_not_overlap(names: list[str]) -> None:
    """In anything, what is found are stretches in order, inside of the line."""
    for several in (False, True):
        edges = [0]
        for stack in find_stacks(line(names, cores=False), several=several):
            edges += [*stack.starts.tolist(), stack.end]
        assert edges == sorted(edges)
        assert edges[-1] <= len(names)


def test_different_kernels_are_no_layers() -> None:
    """Nothing is found where nothing repeats."""
    assert find_stacks(line([f"kernel_{each}" for each in range(100)])) == []


def test_one_kernel_again_and_again_is_no_layer() -> None:
    """A layer has two kernels at least."""
    assert find_stacks(line(["embed", *["gemm"] * 50, "lm_head"])) == []


def test_little_of_a_step_is_no_stack() -> None:
    """What repeats in a small part of a step only is not what it consists of."""
    loop = ["gather", "scatter", "sort"] * 10
    rest = [f"kernel_{each}" for each in range(100)]
    assert find_stacks(line([*rest[:50], *loop, *rest[50:]])) == []
