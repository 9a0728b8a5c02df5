"""The delays of the kernels, emulated: other threads run meanwhile, in any order."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from msgspec import structs

from backends.standard.tests.bench import DENSE, MOE, Bench, small
from backends.standard.tests.delays import (
    Chain,
    count_wrong,
    delayed,
    draft_chain,
    layer_chain,
)
from backends.standard.tests.emulation import EmulatedLauncher
from layerscope.layers.draft import DraftOptions, make_draft
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.problem import Problem, new_slots
from layerscope.layers.spec import LayerSpec
from layerscope_standard.draft import BuiltDraft
from layerscope_standard.layer import make_layer
from layerscope_standard.workshop import Workshop


def chain(problem: Problem, workshop: Workshop) -> Chain:
    """The standard layer."""
    built = make_layer(problem, workshop)
    return layer_chain(problem, built.workshop, built.step)


@pytest.mark.parametrize(
    "spec",
    [
        small(structs.replace(MOE, hidden_size=128), draft_tokens=2, context=33),
        small(DENSE, draft_tokens=0, context=33),
    ],
    ids=["moe", "dense"],
)
def test_threads_of_a_block_may_be_delayed(bench: Bench, spec: LayerSpec) -> None:
    """In which order warps come to a barrier, or leave it, changes no bit."""
    problem = bench.problem(spec)
    workshop = bench.workshop()
    tried = chain(problem, delayed(workshop))
    assert count_wrong(chain(problem, bench.workshop()), tried, 3) == 0
    launcher = workshop.launcher
    assert isinstance(launcher, EmulatedLauncher)
    assert all(("DELAYS", 2_000) in each.kernel.defines for each in launcher.launched)


def test_drafts_may_be_delayed(bench: Bench) -> None:
    """The last block to end is another one."""
    spec = DraftSpec(model="small", vocab_size=300, rank=64, tokens=2, requests=3)
    problem = make_draft(spec, DraftOptions(passes=2, steps=2))

    def of(workshop: Workshop) -> Chain:
        step = BuiltDraft(problem, workshop).plan(spec)
        assert step is not None
        return draft_chain(problem, workshop, step)

    tried = of(delayed(bench.workshop()))
    assert count_wrong(of(bench.workshop()), tried, 3) == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda problem: problem.buffers[0].out[0, :1].add_(1.0),
        lambda problem: problem.buffers[1].out[-1, -1:].mul_(torch.nan),
        lambda problem: (
            problem.caches[1]
            .value.flatten(0, 1)
            .index_fill_(0, new_slots(problem, 1), 7.0)
        ),
    ],
    ids=["first", "nan", "cache"],
)
def test_one_wrong_replay_is_counted(
    bench: Bench, spoil: Callable[[Problem], object]
) -> None:
    """In a number, by one that is none, or in the cache of any pass."""
    problem = bench.problem(small(DENSE, draft_tokens=0, context=33))
    right = chain(problem, bench.workshop())
    played: list[None] = []

    def play() -> None:
        right.play()
        played.append(None)
        if len(played) in {3, 5}:
            spoil(problem)

    assert count_wrong(right, replace(right, play=play), 6) == 2


def test_a_replay_that_writes_nothing_is_wrong(bench: Bench) -> None:
    """Where results are ruined before; else it leaves those of another input."""
    problem = bench.problem(small(DENSE, draft_tokens=0, context=33))
    right = chain(problem, bench.workshop())
    lazy = replace(right, play=lambda: None)
    assert count_wrong(right, lazy, 4) == 4
    assert count_wrong(right, lazy, 4, is_poisoned=False) == 2


def test_nothing_is_right_where_inputs_do_not_matter(bench: Bench) -> None:
    """A test whose results are all alike could not fail."""
    problem = bench.problem(small(DENSE, draft_tokens=0, context=33))
    right = chain(problem, bench.workshop())

    def play() -> None:
        for buffers in problem.buffers:
            buffers.out.fill_(1.0)
        for cache in problem.caches:
            cache.key.fill_(1.0)
            cache.value.fill_(1.0)

    with pytest.raises(AssertionError):
        count_wrong(replace(right, play=play), right, 1)
