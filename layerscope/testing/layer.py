"""Whether a backend's layer writes what it must, nothing else, and the right values."""

from collections.abc import Iterator

import torch
from torch import Tensor

from layerscope.layers.attention import project, rope_tables
from layerscope.layers.feed import advance
from layerscope.layers.problem import Problem, new_slots
from layerscope.layers.reference import reference_output, relative_error
from layerscope.layers.routing import is_planned
from layerscope.layers.spec import DType
from layerscope.plugin import Numerics
from layerscope.regions import Region
from layerscope.testing.arm import ArmUnderTest
from layerscope.testing.watch import Watch, is_same, layer_tensors, writable


def footprint(arm: ArmUnderTest) -> Iterator[str]:
    """What the regions of `arm` write besides what they must, or leave unwritten.

    Every group of its own regions runs alone on right inputs, pass after pass. Values
    between two of its own regions may stay on chip.
    """
    problem = arm.problem
    tensors = layer_tensors(problem)
    advance(problem.feed)
    for index in range(problem.passes):
        for group in arm.groups:
            if not group.is_own:
                arm.run(group, index)
                continue
            allowed = writable(problem, group.regions, index)
            for name, rows in allowed.items():
                _poison(tensors[name], rows)
            arm.wait()
            watch = Watch(tensors)
            arm.run(group, index)
            arm.wait()
            written = watch.written(allowed)
            if written:
                yield f"{group.name} of pass {index} wrote to {', '.join(written)}"
            # Others read the results of the last region, and the cache.
            must = writable(problem, group.regions[-1:], index)
            must |= {name: rows for name, rows in allowed.items() if rows is not None}
            left = [
                name for name, rows in must.items() if _is_poisoned(tensors[name], rows)
            ]
            if left:
                yield f"{group.name} left NaN, or nothing, in {', '.join(left)}"
            if written or left:
                return


def _poison(tensor: Tensor, rows: Tensor | None) -> None:
    if rows is None:
        tensor.fill_(torch.nan)
    else:
        tensor.index_fill_(0, rows, torch.nan)


def _is_poisoned(tensor: Tensor, rows: Tensor | None) -> bool:
    return bool((tensor if rows is None else tensor[rows]).isnan().any())


def _rows(problem: Problem, index: int) -> tuple[Tensor, Tensor]:
    """The new rows of the cache, keys and values, each [rows, kv_heads, head_dim]."""
    slots, cache = new_slots(problem, index), problem.caches[index]
    return cache.key.flatten(0, 1)[slots], cache.value.flatten(0, 1)[slots]


def values(arm: ArmUnderTest, numerics: Numerics) -> Iterator[str]:
    """What is wrong with what `arm` computes, over replays of every step and one more.

    Each replay has new inputs and new experts; the last has those of the first.
    """
    steps = range(arm.problem.steps)
    replays: list[tuple[Tensor, ...]] = []
    for step in steps:
        replays.append(arm.replay(step))
        if step and any(map(is_same, *replays[-2:])):
            yield "a replay on new inputs gave the output of the one before it"
            return
        wrong = list(_wrong_values(arm, numerics, step))
        if wrong:
            yield from wrong
            return
    if not all(map(is_same, replays[0], arm.replay(0))):
        yield (
            "two replays on the same inputs differ; experiments need results that are "
            "the same bit for bit"
        )


def _wrong_values(arm: ArmUnderTest, numerics: Numerics, step: int) -> Iterator[str]:
    problem = arm.problem
    bound = numerics.bound(problem.spec.dtype)
    for index in range(problem.passes):
        ids = arm.expert_ids(index)
        plan = problem.expert_plan
        if ids is not None and (plan is None or not is_planned(ids, plan[step, index])):
            yield f"pass {index} chose other experts than the pinned routing"
        found = dict(_errors(arm, index))
        wrong = [
            f"{name} by {error:.2g}" for name, error in found.items() if error > bound
        ]
        if wrong:
            yield (
                f"pass {index} is off in {', '.join(wrong)}, as relative errors; its "
                f"bound is {bound:.2g}"
            )
            return


def _errors(arm: ArmUnderTest, index: int) -> Iterator[tuple[str, float]]:
    """Relative errors of a pass's output and new KV rows, from its own input."""
    problem, spec = arm.problem, arm.problem.spec
    wide = torch.float64 if spec.dtype is DType.FLOAT32 else torch.float32
    right = reference_output(problem, index, wide)
    yield "the output", relative_error(problem.buffers[index].out, right)
    if not arm.covers(Region.ATTENTION):
        return
    rope = rope_tables(spec.model, problem.positions, wide)
    hidden = problem.buffers[index].hidden.to(wide)
    _, *rows = project(hidden, problem.weights[index], spec, rope)
    for name, found, want in zip(
        ("the new keys", "the new values"), _rows(problem, index), rows, strict=True
    ):
        yield name, relative_error(found, want)
