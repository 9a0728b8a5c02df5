import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from layerscope.errors import BackendError
from layerscope.graphs.eager import EagerPlayer
from layerscope.layers.feed import advance
from layerscope.layers.problem import Problem, new_slots
from layerscope.layers.reference import ReferenceStep
from layerscope.plugin import Step
from layerscope.regions import Region
from layerscope.registry import dispatch
from layerscope.run_header import NumericsCheck
from layerscope.runner.bench import Bench
from layerscope.runner.numerics import check_arms
from tests.runner import fakes
from tests.runner.fakes import AGAIN, FUSED, REFERENCE

LAYER = (Region.ATTENTION, Region.O_PROJ_ALL_REDUCE, Region.MOE)
PASSES = 5

Spoil = Callable[[Problem, int], None]


class Liar:
    """The reference, spoilt after it ran one region."""

    def __init__(self, problem: Problem, region: Region, spoil: Spoil) -> None:
        built = dispatch(REFERENCE, problem).steps[region]
        assert isinstance(built, ReferenceStep)
        self.honest = built
        self._problem = problem
        self._region = region
        self._spoil = spoil

    def run(self, region: Region, pass_index: int) -> None:
        """Run it right, and then spoil it."""
        self.honest.run(region, pass_index)
        if region == self._region:
            self._spoil(self._problem, pass_index)

    def expert_ids(self, pass_index: int) -> Tensor | None:
        """The experts that were really chosen."""
        return self.honest.expert_ids(pass_index)

    def touched_bytes(self, region: Region) -> int | None:
        """As the reference."""
        return self.honest.touched_bytes(region)


@pytest.fixture(scope="module")
def problem() -> Problem:
    return fakes.problem(fakes.study(lengths=(PASSES,)))


@pytest.fixture
def bench(tmp_path: Path, problem: Problem) -> Bench:
    """A real CPU bench whose arms all run the reference."""
    of = fakes.study(lengths=(PASSES,))
    made = fakes.bench(of, tmp_path / "run", lambda *_: 1, problem)
    made.player = EagerPlayer()
    made.head = partial(advance, problem.feed)
    honest = dispatch(REFERENCE, problem)
    fakes.workload(made).arms |= dict.fromkeys(("reference", "fused"), honest)
    return made


def check(bench: Bench, **steps: Step) -> list[NumericsCheck]:
    """Check the bench with `steps` of some regions put into the arm ``fused``."""
    mixed = {region: steps.get(region.value) for region in LAYER}
    arms = fakes.workload(bench).arms
    honest = arms["fused"].steps
    chosen = {region: step or honest[region] for region, step in mixed.items()}
    arms["fused"] = fakes.dispatched(FUSED, chosen)
    bench.replays.clear()
    bench.capture()
    with torch.no_grad():
        return check_arms(bench)


def refusal(bench: Bench, **steps: Step) -> str:
    """The line with which the bench refuses the arm ``fused``."""
    with pytest.raises(BackendError) as raised:
        check(bench, **steps)
    return str(raised.value)


def test_every_arm_that_is_right_passes_with_its_error_and_bound(bench: Bench) -> None:
    """In float32 the reference is compared with float64, so the error is small."""
    checks = check(bench)
    assert [(c.arm, c.bound, c.passes) for c in checks] == [
        (arm, 1e-5, True) for arm in ("reference", "fused", AGAIN)
    ]
    assert all(0 < c.error < 1e-6 for c in checks)


@pytest.mark.parametrize("wrong", [0, 2, 4])
def test_wrong_numbers_are_refused_in_the_first_middle_and_last_pass(
    bench: Bench, problem: Problem, wrong: int
) -> None:
    """One element that is off by one is enough."""

    def spoil(problem: Problem, index: int) -> None:
        if index == wrong:
            problem.buffers[index].out[0, 0] += 1.0

    line = refusal(bench, moe=Liar(problem, Region.MOE, spoil))
    begin, _, end = line.partition("relative error against ")
    assert begin == "fused is wrong: "
    words = re.sub(r"precision [0-9.e-]+,", "precision X,", end)
    assert words == (
        "the reference in higher precision X, bound 1e-05; it was not timed"
    )


class Idle(Liar):
    """Runs its region in all passes but one."""

    skipped = 0

    def run(self, region: Region, pass_index: int) -> None:
        """Run it, or do not."""
        if pass_index != self.skipped:
            self.honest.run(region, pass_index)


@pytest.mark.parametrize("skipped", range(PASSES))
def test_an_output_that_is_left_unwritten_is_refused_in_any_pass(
    bench: Bench, problem: Problem, skipped: int
) -> None:
    """The poison that was there before runs through all passes that follow."""
    moe = Idle(problem, Region.MOE, lambda *_: None)
    moe.skipped = skipped
    assert refusal(bench, moe=moe) == (
        "fused is wrong: its output is not what the step can give, or not written at "
        "all; it was not timed"
    )


def test_an_output_that_is_not_finite_is_refused(
    bench: Bench, problem: Problem
) -> None:
    """One element that overflowed is no relative error."""

    def spoil(problem: Problem, index: int) -> None:
        problem.buffers[index].out[-1, 7] = float("inf")

    line = refusal(bench, moe=Liar(problem, Region.MOE, spoil))
    assert line.startswith("fused is wrong: its output is not what the step")


def test_the_output_of_the_step_before_is_refused(
    bench: Bench, problem: Problem
) -> None:
    """A backend that keeps results would be fast, and right about an older input."""
    kept: dict[int, Tensor] = {}

    def spoil(problem: Problem, index: int) -> None:
        out = problem.buffers[index].out
        now = out.clone()
        out.copy_(kept.get(index, now))
        kept[index] = now

    assert refusal(bench, moe=Liar(problem, Region.MOE, spoil)).startswith(
        "fused is wrong: relative error "
    )


def test_an_output_that_was_right_once_and_never_changes_is_refused(
    bench: Bench, problem: Problem
) -> None:
    """The second trial has another input."""
    kept: dict[int, Tensor] = {}

    def spoil(problem: Problem, index: int) -> None:
        out = problem.buffers[index].out
        out.copy_(kept.setdefault(index, out.clone()))

    assert refusal(bench, moe=Liar(problem, Region.MOE, spoil)).startswith(
        "fused is wrong: relative error "
    )


class OtherExperts(Liar):
    """Routes every row to the expert's neighbour, and says so."""

    def run(self, region: Region, pass_index: int) -> None:
        """Run on a bias that was moved by one expert, and put it back."""
        bias = self._problem.router_bias
        assert bias is not None
        before = bias.clone()
        bias.copy_(bias.roll(1, -1))
        self.honest.run(region, pass_index)
        bias.copy_(before)


def test_an_arm_that_chooses_other_experts_is_refused(
    bench: Bench, problem: Problem
) -> None:
    """Other experts are other bytes, whatever the numbers."""
    moe = OtherExperts(problem, Region.MOE, lambda *_: None)
    assert refusal(bench, moe=moe) == (
        "fused chose other experts than the pinned routing in pass 0; "
        "it does other work and was not timed"
    )


def test_experts_in_another_order_are_the_same_experts(
    bench: Bench, problem: Problem
) -> None:
    """Which of the chosen comes first is the backend's own business."""

    class Reversed(Liar):
        def expert_ids(self, pass_index: int) -> Tensor | None:
            ids = self.honest.expert_ids(pass_index)
            assert ids is not None
            return ids.flip(-1).int()

    check(bench, moe=Reversed(problem, Region.MOE, lambda *_: None))


def test_only_who_runs_the_experts_is_asked_for_them(
    bench: Bench, problem: Problem
) -> None:
    """A fallback that runs other regions keeps ids of nothing that was run."""
    idle = Liar(problem, Region.ATTENTION, lambda *_: None)
    checks = check(bench, attention=idle)
    ids = idle.expert_ids(PASSES - 1)
    assert ids is not None
    assert not ids.any()  # expert 0 for every row: no one's routing
    assert all(c.passes for c in checks)


@pytest.mark.parametrize("part", ["key", "value"])
@pytest.mark.parametrize("last", [0, PASSES - 1])
def test_new_rows_that_do_not_reach_the_cache_are_refused(
    bench: Bench, problem: Problem, part: str, last: int
) -> None:
    """The output would be right, and the next token's context would not."""
    names = {"key": "keys", "value": "values"}

    def spoil(problem: Problem, index: int) -> None:
        if index == last:
            pages: Tensor = getattr(problem.caches[index], part)
            slot = new_slots(problem, index)[-1]
            pages.flatten(0, 1)[slot] = float("nan")

    attention = Liar(problem, Region.ATTENTION, spoil)
    assert refusal(bench, attention=attention) == (
        f"fused did not write the new {names[part]} of pass {last} into the KV cache; "
        "it does less work and was not timed"
    )


def test_a_brief_check_sees_the_last_pass_of_every_length_once(bench: Bench) -> None:
    """A wrong pass before it shows if it was not written: its output comes in there."""
    made = fakes.workload(bench)
    seen: list[tuple[str, int]] = []
    error = made.error

    def note(arm: str, index: int, passes: int) -> float:
        seen.append((arm, index))
        return error(arm, index, passes)

    made.error = note  # type: ignore[method-assign]
    bench.replays.clear()
    bench.capture()
    checks = check_arms(bench, is_brief=True)
    assert [check.passes for check in checks] == [True] * 3
    assert seen == [(arm, PASSES - 1) for arm in ("reference", "fused", AGAIN)]
