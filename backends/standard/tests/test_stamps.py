"""Blocks that note when they work, on a CPU whose clock counts how often it is read."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from backends.standard.tests.bench import MOE, Bench, poison, small
from backends.standard.tests.emulation import EmulatedLauncher
from layerscope.errors import BackendError
from layerscope.layers.problem import Problem
from layerscope.layers.spec import DType
from layerscope_standard.backend import ROLES
from layerscope_standard.kernels import Kernel
from layerscope_standard.layer import BuiltLayer, make_layer
from layerscope_standard.products import product
from layerscope_standard.workshop import Workshop

BEGUN, WAITED, _, ENDED = range(4)
EARLY = (("TRIGGER", 1), ("LOADS_EARLY", 1))
"""Kernels trigger at entry, and load weights before their wait."""


@pytest.fixture
def workshop(bench: Bench) -> Workshop:
    return bench.workshop().stamping(is_wanted=True)


def norm(bench: Bench, workshop: Workshop, rows: int) -> None:
    """Norm so many rows, a block each."""
    size = 64
    workshop.operation(
        "norm",
        Kernel("norm", "norm_rows", 256),
        (rows, 1, 1),
        (
            bench.normal(rows, size),
            bench.normal(size),
            bench.normal(rows, size),
            size,
            1e-5,
        ),
    ).enqueue()


def since_first(stamps: Tensor) -> list[list[int]]:
    """When blocks began, had waited, triggered and ended, since the first began."""
    return (stamps - stamps[0, 0]).tolist()


def test_a_stock_kernel_waits_works_and_triggers(
    bench: Bench, workshop: Workshop
) -> None:
    """Blocks run one after another here; each reads the clock once for each step."""
    norm(bench, workshop, rows=2)
    assert since_first(workshop.read_stamps()["norm"]) == [[0, 1, 2, 3], [4, 5, 6, 7]]


def test_a_kernel_may_trigger_before_it_waits(bench: Bench, workshop: Workshop) -> None:
    """As its turns say."""
    norm(bench, replace(workshop, turns={"norm": EARLY}), rows=1)
    assert since_first(workshop.read_stamps()["norm"]) == [[0, 2, 1, 3]]


def test_the_first_wait_counts(bench: Bench, workshop: Workshop) -> None:
    """A product waits again at its end, for warps that had no part of it."""
    early = replace(workshop, turns={"qkv": EARLY})
    weight, rows = bench.weight(DType.BFLOAT16, 16, 256), bench.normal(2, 256)
    product(early, "qkv", weight, 2).operation(weight, rows).enqueue()
    assert since_first(workshop.read_stamps()["qkv"]) == [[0, 2, 1, 3]]


def test_reading_clears(bench: Bench, workshop: Workshop) -> None:
    """What a later launch does not write is not taken for its own."""
    norm(bench, workshop, rows=3)
    workshop.read_stamps()
    assert workshop.read_stamps() == {}


def run(bench: Bench, problem: Problem, workshop: Workshop) -> BuiltLayer:
    """The second pass of a layer, with memory between kernels poisoned."""
    built = make_layer(problem, workshop)
    poison(workshop)
    for region in problem.spec.regions:
        built.step.run(region, 1)
    bench.wait()
    return built


def test_every_kernel_of_a_layer_is_stamped(bench: Bench, workshop: Workshop) -> None:
    """By its role, block by block."""
    problem = bench.problem(small(MOE, context=20))
    built = run(bench, problem, workshop)
    launcher = built.workshop.launcher
    assert isinstance(launcher, EmulatedLauncher)
    blocks = {
        launch.kernel.stamps for launch in launcher.launched if launch.kernel.stamps
    }
    found = built.step.read_stamps()
    assert {*found} == {*ROLES}
    assert {(role, len(stamps)) for role, stamps in found.items()} == blocks
    for role, stamps in found.items():
        there = stamps[stamps[:, ENDED] > 0]
        assert len(there), role
        if role != "gate_up":  # some of its blocks have no expert, and return
            assert len(there) == len(stamps), role
        assert (there.diff() == 1).all(), role


def test_nothing_of_an_earlier_pass_stays(bench: Bench, workshop: Workshop) -> None:
    """Blocks of gate_up that have no expert this time leave their begin, and no more.

    However many experts the pass before had.
    """
    problem = bench.problem(small(MOE, context=20))
    step, plan = make_layer(problem, workshop).step, problem.expert_plan
    assert plan is not None
    ids = plan[int(problem.feed.step)]
    counts = {index: len(ids[index].unique()) for index in range(problem.passes)}
    more, fewer = sorted(counts, key=lambda index: -counts[index])
    assert counts[more] > counts[fewer]
    for index in (more, fewer):
        for region in problem.spec.regions:
            step.run(region, index)
    noted = step.read_stamps()["gate_up"]
    most = min(MOE.experts, problem.spec.rows * MOE.experts_per_token)
    there = counts[fewer] * len(noted) // most
    assert (noted[:, BEGUN] > 0).all()
    assert (noted[:there, ENDED] > 0).all()
    assert not noted[there:, WAITED:].any()


def test_stamps_change_no_bit(bench: Bench, workshop: Workshop) -> None:
    """The layer computes what it does without them; a plain one has none to read."""
    problem = bench.problem(small(MOE, context=20))
    plain = run(bench, problem, bench.workshop())
    want = problem.buffers[1].out.clone()
    problem.buffers[1].out.zero_()
    run(bench, problem, workshop)
    assert torch.equal(problem.buffers[1].out, want)
    assert plain.step.read_stamps() == {}


def test_two_kernels_of_one_role_are_refused(bench: Bench, workshop: Workshop) -> None:
    """One that did not run is not of the pass, and two would be taken for one."""
    norm(bench, workshop, rows=2)
    norm(bench, workshop, rows=3)
    with pytest.raises(BackendError, match="two kernels that ran are called norm"):
        workshop.read_stamps()
