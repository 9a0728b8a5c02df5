"""Numerics before time: every arm against the reference in higher precision."""

from math import inf, isnan

import torch

from layerscope.errors import BackendError
from layerscope.layers.problem import new_slots, poison
from layerscope.layers.reference import reference_output
from layerscope.layers.spec import DType
from layerscope.regions import Region
from layerscope.run import NumericsCheck
from layerscope.runner.bench import Bench


def check_arms(bench: Bench) -> list[NumericsCheck]:
    """Check every arm of the current capture; returns the worst error of each.

    Buffers are poisoned with NaN before each replay, so that what was not written
    shows. Replays of every length are checked, at least two of an arm: the second would
    show an input that never changed. The first, middle and last pass are compared.

    Raises:
        BackendError: an arm is wrong, chose other experts than the plan, or left rows
            of the KV cache unwritten.
    """
    checks = []
    bench.restart(hold=1)
    for arm in bench.arms:
        bound = bench.arms[arm].backend.numerics.bound(bench.study.spec.dtype)
        error = max(_trial(bench, arm, length) for length in _lengths(bench))
        passes = error <= bound
        checks.append(NumericsCheck(arm=arm, error=error, bound=bound, passes=passes))
        if not passes:
            raise BackendError(_wrong(checks[-1]))
    return checks


def _wrong(check: NumericsCheck) -> str:
    if check.error == inf:
        return (
            f"{check.arm} is wrong: its output is not finite, or not written at all; "
            "it was not timed"
        )
    return (
        f"{check.arm} is wrong: relative error {check.error:.2g} against the reference "
        f"in higher precision, bound {check.bound:.2g}; it was not timed"
    )


def _lengths(bench: Bench) -> list[int]:
    """Lengths of the captured replays, the longest once more."""
    lengths = sorted({length for _, length in bench.replays})
    return [*lengths, lengths[-1]]


def _trial(bench: Bench, arm: str, length: int) -> float:
    problem = bench.problem
    bench.player.wait()
    poison(problem)
    bench.replays[arm, length].launch()
    bench.next_step()
    bench.player.wait()
    last = length - 1
    passes = sorted({0, last // 2, last})
    error = max(_error(bench, index) for index in passes)
    if error < inf:  # NaN that came in says nothing about what the pass did with it
        for index in passes:
            _check_experts(bench, arm, index)
            _check_cache(bench, arm, index)
    return error


def _error(bench: Bench, index: int) -> float:
    """``|out - ref| / |ref|`` of one pass, both from the arm's own input."""
    buffers = bench.problem.buffers[index]
    is_fp32 = bench.study.spec.dtype is DType.FLOAT32
    precision = torch.float64 if is_fp32 else torch.float32
    reference = reference_output(bench.problem, index, precision).double()
    difference = torch.linalg.norm(buffers.out.double() - reference)
    error = float(difference / torch.linalg.norm(reference))
    return inf if isnan(error) else error


def _check_experts(bench: Bench, arm: str, index: int) -> None:
    plan, step = bench.problem.expert_plan, bench.arms[arm].steps.get(Region.MOE)
    chosen = None if step is None else step.expert_ids(index)
    if plan is None or chosen is None:
        return
    want = plan[bench.step, index].sort(dim=-1).values
    if not torch.equal(chosen.cpu().long().sort(dim=-1).values, want):
        msg = (
            f"{arm} chose other experts than the pinned routing in pass {index}; "
            "it does other work and was not timed"
        )
        raise BackendError(msg)


def _check_cache(bench: Bench, arm: str, index: int) -> None:
    """Refuse an arm that left new KV rows unwritten; its output would not show it."""
    cache, slots = bench.problem.caches[index], new_slots(bench.problem, index)
    for name, pages in (("keys", cache.key), ("values", cache.value)):
        if pages.flatten(0, 1)[slots].isnan().any():
            msg = (
                f"{arm} did not write the new {name} of pass {index} into the KV "
                "cache; it does less work and was not timed"
            )
            raise BackendError(msg)
