from collections import Counter

import pytest
import torch
from torch._dynamo import config
from torch.profiler import ProfilerActivity, profile, record_function

from backends.torch_compile.tests.small import (
    DENSE,
    MOE,
    Compiled,
    build,
    build_on,
    context_of,
    problem_of,
    shape_of,
    small,
)
from layerscope.layers.feed import advance, restart
from layerscope.layers.problem import new_slots, poison
from layerscope.layers.reference import BACKEND as REFERENCE
from layerscope.layers.spec import DType
from layerscope.plugin import StepShape, WholeStep
from layerscope.record.kineto import REPLAY, operators
from layerscope.record.torch_profiler import RecordFunctionObserver, _raw
from layerscope.regions import Mark, Region, layer_pass, observing, region
from layerscope_torch_compile import BACKEND

pytestmark = pytest.mark.usefixtures("_compiler")


@pytest.fixture(scope="module")
def moe(_compiler: None) -> Compiled:
    """Routed experts: bfloat16, fp8 in ragged blocks, two requests, one rank of two."""
    spec = small(
        MOE,
        dtype=DType.BFLOAT16,
        weight_dtype=DType.FLOAT8_E4M3,
        requests=2,
        tp=2,
        shard_shaped=True,
    )
    return build(BACKEND, spec)


@pytest.fixture(scope="module")
def dense(_compiler: None) -> Compiled:
    """A dense layer in float32."""
    return build(BACKEND, small(DENSE))


@pytest.fixture(scope="module")
def whole(_compiler: None) -> Compiled:
    """The layer with experts as one graph, in float32."""
    return build(BACKEND, small(MOE), whole_layer="on")


@pytest.fixture(params=["moe", "dense", "whole"])
def each(request: pytest.FixtureRequest) -> Compiled:
    """Each of the compiled layers."""
    compiled: Compiled = request.getfixturevalue(request.param)
    return compiled


def test_every_step_is_within_its_bound(each: Compiled) -> None:
    """All passes agree with float64 on the inputs of every step."""
    bound = BACKEND.numerics.bound(each.problem.spec.dtype)
    for _ in range(each.problem.steps):
        advance(each.problem.feed)
        assert each.error() <= bound


def test_all_passes_run_what_is_compiled_already(each: Compiled) -> None:
    """Nothing is left to compile once it is built."""
    with config.patch(error_on_recompile=True):
        for index in range(each.problem.passes):
            each.run(index)


def test_new_kv_rows_are_those_of_the_reference(each: Compiled) -> None:
    """The new rows have their values, and all others stay as they were."""
    problem, bound = each.problem, BACKEND.numerics.bound(each.problem.spec.dtype)
    reference = build_on(REFERENCE, problem)
    cache, slots = problem.caches[1], new_slots(problem, 1)
    caches = []
    for layer in (each, reference):
        poison(problem)
        problem.buffers[1].hidden.fill_(0.5)
        layer.run(1)
        caches.append(
            (cache.key.flatten(0, 1).clone(), cache.value.flatten(0, 1).clone())
        )
    for ours, theirs in zip(*caches, strict=True):
        error = (ours[slots] - theirs[slots]).norm() / theirs[slots].norm()
        assert error <= bound
        for rows in (ours, theirs):
            rows[slots] = 0
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", ["moe", "whole"])
def test_the_planned_experts_run(name: str, request: pytest.FixtureRequest) -> None:
    """The ids of every pass are those of the plan, step by step."""
    layer: Compiled = request.getfixturevalue(name)
    problem = layer.problem
    assert problem.expert_plan is not None
    restart(problem.feed, 1)
    for step in (0, 1, 0):
        advance(problem.feed)
        for index in range(problem.passes):
            layer.run(index)
            ids = layer.step.expert_ids(index)
            assert ids is not None
            planned = problem.expert_plan[step, index]
            assert ids.sort(-1).values.tolist() == planned.sort(-1).values.tolist()


def test_a_dense_layer_has_no_expert_ids(dense: Compiled) -> None:
    """Without experts there are no ids to compare."""
    assert dense.step.expert_ids(0) is None


def test_every_region_has_fewer_kernels_than_the_reference(
    moe: Compiled, dense: Compiled
) -> None:
    """On a CPU too, where the profiler sees inductor's kernels by their names."""
    for layer in (moe, dense):
        found = kernels(layer)
        counts = Counter(
            name for name, _ in found if name in layer.problem.spec.regions
        )
        theirs = kernels(build_on(REFERENCE, layer.problem))
        for name, count in Counter(name for name, _ in theirs).items():
            assert 0 < counts[name] < count
        compiled = {name for name, kernel in found if "cpp_fused" in kernel}
        assert compiled == set(layer.problem.spec.regions)


def kernels(layer: Compiled) -> list[tuple[str, str]]:
    """The region and name of every kernel that the profiler sees in one pass."""
    layer.run(0)
    step = layer.step
    assert not isinstance(step, WholeStep)
    replay = record_function(Mark(REPLAY, "0").label)
    with (
        profile(activities=[ProfilerActivity.CPU]) as profiler,
        replay,
        observing(RecordFunctionObserver()),
        layer_pass(0),
    ):
        for name in layer.problem.spec.regions:
            with region(name):
                step.run(name, 0)
    results = profiler.profiler.kineto_results
    found = operators(map(_raw, results.events()))[0]
    return [(place.region, raw.name) for place, raw in found]


def test_a_whole_layer_says_why_it_is_one(whole: Compiled) -> None:
    """Its kernels belong to no region, and the report can say so."""
    assert isinstance(whole.step, WholeStep)
    assert whole.step.why_whole == (
        "compiled as one graph, kernels serve several regions"
    )
    assert whole.step.layer_bytes() is None


def test_regions_cannot_tell_their_bytes(moe: Compiled) -> None:
    """A fused kernel's operands are the compiler's, so none are claimed."""
    assert not isinstance(moe.step, WholeStep)
    assert moe.step.touched_bytes(Region.MOE) is None


def test_other_shapes_are_left_to_others() -> None:
    """It agrees to run the problem's own step, and no other."""
    spec = small(DENSE)
    built = BACKEND.build(context_of(problem_of(spec)))
    assert built.plan(shape_of(spec)) is not None
    assert built.plan(StepShape(1, 4, 21)) is None
    assert built.plan(StepShape(1, 3, 22)) is None
