from collections.abc import Iterator

import msgspec
import pytest
import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.layers.families import estimate_bytes
from layerscope.layers.feed import advance, restart
from layerscope.layers.problem import (
    Problem,
    ProblemOptions,
    make_problem,
    new_slots,
    poison,
)
from layerscope.layers.reference import build
from layerscope.layers.routing import REJECT
from layerscope.layers.spec import DType, LayerSpec, ModelShape
from layerscope.layers.weights import BlockScaled
from layerscope.plugin import BuildContext, Step, StepShape, Waits
from layerscope.regions import Region


def small(model: ModelShape, **changes: object) -> LayerSpec:
    """Two requests of three rows each, in float32."""
    spec = LayerSpec(
        model=model,
        requests=2,
        draft_tokens=2,
        context=11,
        page_size=4,
        dtype=DType.FLOAT32,
        weight_dtype=DType.FLOAT32,
    )
    return msgspec.structs.replace(spec, **changes)


def weight_tensors(problem: Problem) -> Iterator[tuple[str, Tensor]]:
    """Every tensor of the weights, with its pass and name."""
    for index, weights in enumerate(problem.weights):
        for name, tensor in weights.items():
            if isinstance(tensor, BlockScaled):
                yield f"{index} {name} data", tensor.data
                yield f"{index} {name} scale", tensor.scale
            else:
                yield f"{index} {name}", tensor


def all_tensors(problem: Problem) -> dict[str, Tensor]:
    """Every tensor of a problem that is on its device, each once."""
    found = dict(weight_tensors(problem))
    found |= {
        f"{index} {name}": getattr(cache, name)
        for index, cache in enumerate(problem.caches)
        for name in ("key", "value", "page_table")
    }
    found |= {
        f"{index} {name}": getattr(buffers, name)
        for index, buffers in enumerate(problem.buffers)
        for name in ("attn_out", "mid_hidden", "mid_residual", "out")
    }
    found["hidden"] = problem.buffers[0].hidden
    for name in ("step", "launches", "hold"):
        found[name] = getattr(problem.feed, name)
    names = ("positions", "inputs", "router_bias", "bias_pool")
    once = {name: getattr(problem, name) for name in names}
    return found | {name: value for name, value in once.items() if value is not None}


def reference_step(problem: Problem) -> Step:
    """The reference, built for `problem`."""
    spec = problem.spec
    waits = Waits(abort=torch.zeros(1, dtype=torch.int32))
    built = build(BuildContext(problem=problem, waits=waits))
    shape = StepShape(spec.requests, spec.tokens_per_request, spec.context)
    step = built.plan(shape)
    assert step is not None
    return step


def replay(problem: Problem, step: Step, *skipped: Region) -> None:
    """All regions of all passes except `skipped`."""
    for index in range(problem.passes):
        for region in problem.spec.regions:
            if region not in skipped:
                step.run(region, index)


def written(problem: Problem) -> list[Tensor]:
    """What the passes of a replay must write."""
    tensors = [
        tensor
        for each in problem.buffers
        for tensor in (each.attn_out, each.mid_hidden, each.mid_residual, each.out)
    ]
    for index, cache in enumerate(problem.caches):
        slots = new_slots(problem, index)
        tensors += [pages.flatten(0, 1)[slots] for pages in (cache.key, cache.value)]
    return tensors


@pytest.mark.parametrize("weight_dtype", DType)
@pytest.mark.parametrize("tp", [1, 2])
def test_the_estimate_is_what_is_allocated(
    model: ModelShape, weight_dtype: DType, tp: int
) -> None:
    """The torch-free estimate is the exact sum of the tensors of a problem."""
    spec = small(
        model,
        dtype=DType.BFLOAT16,
        weight_dtype=weight_dtype,
        tp=tp,
        shard_shaped=tp > 1,
    )
    problem = make_problem(spec, ProblemOptions(passes=3, steps=2))
    storages = {
        tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes()
        for tensor in all_tensors(problem).values()
    }
    assert sum(storages.values()) == estimate_bytes(spec, passes=3, steps=2)


def test_the_seed_decides_everything(model: ModelShape) -> None:
    """The same seed makes equal tensors; another one other weights, inputs, caches."""
    first, same, other = (
        all_tensors(
            make_problem(small(model), ProblemOptions(passes=2, steps=2, seed=seed))
        )
        for seed in (7, 7, 8)
    )
    assert [name for name in first if not torch.equal(first[name], same[name])] == []
    assert not torch.equal(first["1 qkv"], other["1 qkv"])
    assert not torch.equal(first["inputs"], other["inputs"])
    assert not torch.equal(first["0 key"], other["0 key"])


def test_a_pass_does_not_depend_on_how_many_there_are(model: ModelShape) -> None:
    """Weights, caches and inputs of a short problem are those of a longer one."""
    short = make_problem(small(model), ProblemOptions(passes=1, steps=1))
    long = make_problem(small(model), ProblemOptions(passes=3, steps=4))
    same = all_tensors(long)
    for name, tensor in all_tensors(short).items():
        if name.startswith("0 ") or name in ("hidden", "positions"):
            assert torch.equal(tensor, same[name]), name
    assert torch.equal(short.inputs, long.inputs[:1])


def test_every_pass_has_its_own_memory(model: ModelShape) -> None:
    """Weights from a checkpoint are copied for each pass, and not shared with it."""
    spec = small(model)
    drawn = make_problem(spec, ProblemOptions(passes=1, steps=1)).weights[0]
    plain = {
        name: tensor for name, tensor in drawn.items() if isinstance(tensor, Tensor)
    }
    assert plain.keys() == drawn.keys()
    options = ProblemOptions(passes=2, steps=1, weights=plain)
    problem = make_problem(spec, options)
    for name, tensor in plain.items():
        copies = [weights[name] for weights in problem.weights]
        assert all(isinstance(copy, Tensor) for copy in copies)
        assert all(torch.equal(copy, tensor) for copy in copies)  # type: ignore[arg-type]
    tensors = [tensor for _, tensor in weight_tensors(problem)] + [*plain.values()]
    assert len({tensor.data_ptr() for tensor in tensors}) == len(tensors)


def test_pages_are_shuffled_and_belong_to_one_request(moe: ModelShape) -> None:
    """Each page is in one place of the page table, in no order, other in each pass."""
    spec = small(moe, context=60)
    problem = make_problem(spec, ProblemOptions(passes=2, steps=1))
    tables = [cache.page_table for cache in problem.caches]
    for table in tables:
        assert table.dtype == torch.int32
        assert table.shape == (2, 16)
        assert sorted(table.flatten().tolist()) == list(range(32))
        assert table.flatten().tolist() != list(range(32))
    assert not torch.equal(*tables)


def test_new_rows_go_behind_the_context(moe: ModelShape) -> None:
    """Row t of a request goes to slot (context + t) of its pages."""
    problem = make_problem(small(moe), ProblemOptions(passes=1, steps=1))
    table = problem.caches[0].page_table.tolist()
    assert problem.positions.tolist() == [11, 12, 13, 11, 12, 13]
    assert new_slots(problem, 0).tolist() == [
        pages[position // 4] * 4 + position % 4
        for pages in table
        for position in (11, 12, 13)
    ]


def test_a_pass_reads_what_the_one_before_wrote(model: ModelShape) -> None:
    """The output buffer of a pass is the input buffer of the next."""
    buffers = make_problem(small(model), ProblemOptions(passes=3, steps=1)).buffers
    assert buffers[0].out is buffers[1].hidden
    assert buffers[1].out is buffers[2].hidden


def test_advance_changes_inputs_and_routing_and_wraps(moe: ModelShape) -> None:
    """Each replay has the inputs and routing of the next step; then from the first."""
    problem = make_problem(small(moe), ProblemOptions(passes=2, steps=3))
    hidden, bias = problem.buffers[0].hidden, problem.router_bias
    places = (hidden.data_ptr(), problem.feed.step.data_ptr())
    assert problem.bias_pool is not None
    assert bias is not None
    for step in (0, 1, 2, 0, 1):
        assert problem.feed.step.tolist() == [step]
        assert torch.equal(hidden, problem.inputs[step])
        assert torch.equal(bias, problem.bias_pool[step])
        advance(problem.feed)
    assert places == (hidden.data_ptr(), problem.feed.step.data_ptr())


def test_held_replays_share_their_step_after_a_restart(moe: ModelShape) -> None:
    """With a hold of two every step comes twice, beginning with step 0."""
    problem = make_problem(small(moe), ProblemOptions(passes=1, steps=2))
    advance(problem.feed)
    restart(problem.feed, hold=2)
    steps = []
    for _ in range(6):
        advance(problem.feed)
        steps += problem.feed.step.tolist()
        assert torch.equal(problem.buffers[0].hidden, problem.inputs[steps[-1]])
    assert steps == [0, 0, 1, 1, 0, 0]
    assert not torch.equal(problem.inputs[0], problem.inputs[1])


def test_the_bias_pool_pins_the_plan(moe: ModelShape) -> None:
    """The bias is 0 exactly at the planned experts of every step, pass and row."""
    problem = make_problem(small(moe), ProblemOptions(passes=2, steps=2))
    assert problem.bias_pool is not None
    assert problem.expert_plan is not None
    planned = torch.full_like(problem.bias_pool, REJECT)
    planned.scatter_(-1, problem.expert_plan, 0.0)
    assert torch.equal(problem.bias_pool, planned)


def test_a_dense_problem_has_no_routing(dense: ModelShape) -> None:
    """Without experts there is neither plan nor bias, and advance does without."""
    problem = make_problem(small(dense), ProblemOptions(passes=1, steps=2))
    advance(problem.feed)
    routing = (problem.expert_plan, problem.bias_pool, problem.router_bias)
    assert routing == (None, None, None)
    assert torch.equal(problem.buffers[0].hidden, problem.inputs[1])


def test_a_replay_overwrites_all_poison(model: ModelShape) -> None:
    """After poison and a replay no NaN is left, and the context was never touched."""
    problem = make_problem(small(model), ProblemOptions(passes=2, steps=2))
    step = reference_step(problem)
    poison(problem)
    assert all(bool(tensor.isnan().all()) for tensor in written(problem))
    replay(problem, step)
    leftover = [name for name, t in all_tensors(problem).items() if t.isnan().any()]
    assert leftover == []


@pytest.mark.parametrize("skipped", [0, 1, 2])
def test_poison_finds_what_was_not_written(model: ModelShape, skipped: int) -> None:
    """A region that does not run leaves NaN in the output."""
    problem = make_problem(small(model), ProblemOptions(passes=2, steps=2))
    step = reference_step(problem)
    poison(problem)
    replay(problem, step, problem.spec.regions[skipped])
    assert bool(problem.buffers[-1].out.isnan().all())


def test_a_spec_that_cannot_run_is_refused(moe: ModelShape) -> None:
    """A problem is not made of a spec that its own check refuses."""
    with pytest.raises(InputError, match="layer 9 is out of range"):
        make_problem(small(moe, layer=9), ProblemOptions(passes=1, steps=1))
