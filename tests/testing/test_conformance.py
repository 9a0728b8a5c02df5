"""A backend that lies in one way fails the suite for that reason."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from layerscope.environment import DeviceFacts
from layerscope.graphs.eager import EagerPlayer, EagerReplay
from layerscope.graphs.replay import Body, Edge, Node, Replay, Timing
from layerscope.layers.draft import DraftProblem
from layerscope.layers.draft_reference import ReferenceDraft, ReferenceDraftStep
from layerscope.layers.problem import Problem, new_slots
from layerscope.layers.reference import ReferenceBuilt, ReferenceStep
from layerscope.layers.spec import Family, LayerSpec
from layerscope.plugin import (
    BackendSpec,
    BuildContext,
    Built,
    BuiltDraft,
    DraftContext,
    Numerics,
    Requires,
    StepShape,
    Switch,
)
from layerscope.regions import Region
from layerscope.testing import arm, check_backend, draft
from tests.testing.paper import (
    ALL,
    SPEC,
    WHERE,
    PaperBuilt,
    PaperStep,
    failures,
    is_own,
    nothing,
    paper,
)


def test_an_honest_backend_passes() -> None:
    """The report says what was checked, and nothing was left out."""
    found = check_backend(paper(), specs=[SPEC])
    assert (found.checked, found.left_out) == ([WHERE.removesuffix(": ")], [])
    assert str(found) == "paper keeps the contract in 1 checks"


def test_the_reference_passes() -> None:
    """Its layers and drafts of both families, in all types and shapes, by its name."""
    found = check_backend("reference")
    assert found.left_out == []
    assert len(found.checked) == 2 * (12 + 9)  # a step without drafts has no draft


def test_a_backend_may_keep_values_between_its_regions_on_chip() -> None:
    """What no other backend reads need not be written."""

    def spoil(problem: Problem, region: Region, index: int) -> None:
        if region is Region.MOE:
            problem.buffers[index].mid_residual.fill_(torch.nan)
            problem.buffers[index].attn_out.fill_(torch.nan)

    assert check_backend(paper(spoil), specs=[SPEC]).failures == []


def test_what_is_not_written_is_named() -> None:
    """A region that writes half of its rows has not run."""

    def spoil(problem: Problem, region: Region, index: int) -> None:
        if region is Region.O_PROJ_ALL_REDUCE:
            problem.buffers[index].mid_residual[3:] = torch.nan

    covers = {Family.QWEN3_MOE: (Region.O_PROJ_ALL_REDUCE,)}
    assert failures(paper(spoil, covers=covers)) == [
        "o_proj_all_reduce left NaN, or nothing, in mid_residual of pass 0"
    ]
    (failure,) = failures(paper(skips=ALL))
    assert failure == (
        "attention + o_proj_all_reduce + moe left NaN, or nothing, in "
        "out of pass 0, key cache of pass 0, value cache of pass 0"
    )


def write_hidden(problem: Problem, index: int) -> None:
    """Write the input of a pass."""
    problem.buffers[index].hidden.add_(1.0)


def write_weights(problem: Problem, index: int) -> None:
    """Write a weight of the pass."""
    weight = problem.weights[index]["o"]
    assert isinstance(weight, Tensor)
    weight[0, 0] += 1.0


def write_cache(problem: Problem, index: int) -> None:
    """Write a row of the cache that is not new."""
    rows = problem.caches[index].key.flatten(0, 1)
    old = torch.ones(len(rows), dtype=torch.bool)
    old[new_slots(problem, index)] = False
    rows[old.nonzero()[0]] = 0.0


def write_next_pass(problem: Problem, index: int) -> None:
    """Write a buffer of the next pass, or of the first."""
    problem.buffers[(index + 1) % problem.passes].attn_out.add_(1.0)


def write_positions(problem: Problem, index: int) -> None:
    """Write what all passes read."""
    del index
    problem.positions.add_(1)


@pytest.mark.parametrize(
    ("write", "names"),
    [
        (write_hidden, "hidden of pass 0"),
        (write_weights, "weight o of pass 0"),
        (write_cache, "key cache of pass 0"),
        (write_next_pass, "attn_out of pass 1"),
        (write_positions, "positions"),
    ],
)
def test_what_is_written_elsewhere_is_named(
    write: Callable[[Problem, int], None], names: str
) -> None:
    """Inputs, weights, old rows of the cache and other passes are not a region's."""

    def spoil(problem: Problem, region: Region, index: int) -> None:
        if region is Region.MOE:
            write(problem, index)

    (failure,) = failures(paper(spoil))
    assert failure == f"attention + o_proj_all_reduce + moe of pass 0 wrote to {names}"


def test_an_output_that_does_not_follow_its_input_is_stale() -> None:
    """A result that was kept from an earlier replay is right only once."""
    kept: dict[int, Tensor] = {}

    def spoil(problem: Problem, region: Region, index: int) -> None:
        if region is Region.MOE:
            out = problem.buffers[index].out
            is_replayed = int(problem.feed.step) or index in kept
            if not is_replayed:
                kept[index] = out.clone()
            elif index in kept:
                out.copy_(kept[index])

    found = failures(paper(spoil, numerics=Numerics(float32=0.99)))
    assert found == ["a replay on new inputs gave the output of the one before it"]


def test_wrong_numbers_are_told_with_the_bound() -> None:
    """The error is that of the first wrong pass."""

    def spoil(problem: Problem, region: Region, index: int) -> None:
        if region is Region.MOE and index == 1:
            problem.buffers[index].out.mul_(1.5)

    assert failures(paper(spoil)) == [
        "pass 1 is off in the output by 0.5, as relative errors; its bound is 1e-05"
    ]


def test_wrong_rows_of_the_cache_are_wrong_numbers() -> None:
    """The output of the step would not show them; that of the next step would."""

    def spoil(problem: Problem, region: Region, index: int) -> None:
        if region is Region.ATTENTION:
            slots = new_slots(problem, index)
            problem.caches[index].value.flatten(0, 1)[slots] *= 2.0

    assert failures(paper(spoil)) == [
        "pass 0 is off in the new values by 1, as relative errors; its bound is 1e-05"
    ]


def test_experts_of_its_own_are_other_work() -> None:
    """Every pass must run the experts that are pinned."""

    class Stubborn(PaperStep):
        def expert_ids(self, pass_index: int) -> Tensor | None:  # noqa: ARG002
            return torch.zeros(6, 2, dtype=torch.int32)

    def build(context: BuildContext) -> Built:
        inner = ReferenceBuilt(context.problem).plan(StepShape(1, 6, 17))
        assert inner is not None
        return PaperBuilt(Stubborn(context.problem, inner, nothing), is_own)

    assert failures(paper(build=build)) == [
        f"pass {index} chose other experts than the pinned routing"
        for index in range(3)
    ]


def test_results_that_change_from_run_to_run_are_told() -> None:
    """Within its bounds is not enough where experiments compare bit by bit."""
    draw = random.Random(0)  # noqa: S311 (not a secret)

    def spoil(problem: Problem, region: Region, index: int) -> None:
        if region is Region.MOE:
            problem.buffers[index].out.mul_(1.0 + draw.random() * 1e-4)

    (failure,) = failures(paper(spoil, numerics=Numerics(float32=1e-2)))
    assert failure == (
        "two replays on the same inputs differ; experiments need results that are the "
        "same bit for bit"
    )


def test_a_plan_that_answers_by_the_hour_is_told() -> None:
    """Whatever changes between two calls must not change the answer."""
    calls: list[StepShape] = []

    def takes(shape: StepShape) -> bool:
        calls.append(shape)
        return is_own(shape) and len(calls) % 2 == 1

    (failure, *_) = failures(paper(takes=takes))
    assert failure.endswith(
        "plan answered the same shape with PaperStep, None, PaperStep: it must always "
        "decide alike"
    )


def test_a_plan_that_computes_is_told() -> None:
    """Deciding must not enqueue work, nor write."""
    problems: list[Problem] = []

    def build(context: BuildContext) -> Built:
        problems.append(context.problem)
        return paper().build(context)

    def takes(shape: StepShape) -> bool:
        problems[-1].buffers[0].out.zero_()
        return is_own(shape)

    def build_computing(context: BuildContext) -> Built:
        built = build(context)
        assert isinstance(built, PaperBuilt)
        built.takes = takes
        return built

    place = WHERE.removeprefix("paper on ")
    assert failures(paper(build=build_computing))[:1] == [
        f"{place}plan ran aten.zero_: it must decide on the host alone"
    ]


def test_a_plan_that_takes_what_it_has_no_buffers_for_is_told() -> None:
    """More requests, more tokens or a longer context than the problem's."""
    found = failures(paper(takes=lambda _: True))
    assert [failure.partition("plan ")[2].partition("(")[2] for failure in found] == [
        f"{sizes}), for which its problem has no buffers"
        for sizes in (
            "requests=2, tokens_per_request=6, context=17",
            "requests=1, tokens_per_request=7, context=17",
            "requests=1, tokens_per_request=6, context=33",
        )
    ]


def test_a_build_that_writes_inputs_or_counts_no_bytes_is_told() -> None:
    """Weights are the problem's, and sizes are sizes."""

    def build(context: BuildContext) -> Built:
        context.problem.inputs.zero_()
        built = paper().build(context)
        assert isinstance(built, PaperBuilt)
        built.device_bytes = -1
        return built

    place = WHERE.removeprefix("paper on ")
    assert failures(paper(build=build)) == [
        f"{place}build wrote to inputs",
        f"{place}device_bytes is -1, which is no size",
    ]


def switched(scale: float, *, bitwise: bool) -> BackendSpec:
    """A backend whose switch scales the output by `scale`."""
    switch = Switch(name="fast", values=("no", "yes"), toggles="haste", bitwise=bitwise)

    def build(context: BuildContext) -> Built:
        def spoil(problem: Problem, region: Region, index: int) -> None:
            if region is Region.MOE and context.switches["fast"] == "yes":
                problem.buffers[index].out.mul_(scale)

        return paper(spoil).build(context)

    return paper(build=build, switches=(switch,), numerics=Numerics(float32=1e-3))


def test_a_switch_that_is_not_bitwise_though_it_says_so_is_told() -> None:
    """Within its bounds it may be, but experiments rely on its word."""
    place = WHERE.replace("paper on", "paper:fast=yes on")
    assert failures(switched(1.0 + 1e-4, bitwise=True)) == [
        f"{place}its results are not bit for bit those at the default"
    ]
    found = check_backend(switched(1.0 + 1e-4, bitwise=False), specs=[SPEC])
    assert len(found.checked) == 2


def test_a_value_of_a_switch_that_declines_is_left_out() -> None:
    """It is no arm of the backend's, and none of the fallback's either."""
    switch = Switch(name="fast", values=("no", "yes"), toggles="haste")

    def build(context: BuildContext) -> Built:
        is_fast = context.switches["fast"] == "yes"
        takes = (lambda _: False) if is_fast else is_own
        return paper(takes=takes).build(context)

    found = check_backend(paper(build=build, switches=(switch,)), specs=[SPEC])
    assert found.checked == [WHERE.removesuffix(": ")]
    fast = WHERE.replace("paper on", "paper:fast=yes on")
    assert found.left_out == [f"{fast}its plan declined"]


class Stream:
    """A player on a stream of its own, which sees what it did not wait for."""

    def __init__(self) -> None:
        self.inner = EagerPlayer()
        self.pending: list[str] = []

    def capture(
        self, body: Body, passes: int, beside: Replay | None = None
    ) -> "Launches":
        """Warm `body` at once, as a player of graphs does."""
        assert self.pending == [], "captured before others were done"
        body(1)
        return Launches(self, self.inner.capture(body, passes, beside))

    def time(self, replays: Sequence[Replay]) -> Timing:
        """Nothing is timed here."""
        raise AssertionError(replays)

    def wait(self) -> None:
        """Nothing is pending then."""
        self.pending.clear()


@dataclass
class Launches:
    """A replay that must find nothing pending on another stream."""

    stream: Stream
    inner: EagerReplay
    passes: int = 0
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()

    def launch(self) -> None:
        """Launch on the stream of the player."""
        assert self.stream.pending == [], "launched before others were done"
        self.inner.launch()
        self.stream.pending.append("launch")

    def close(self) -> None:
        """Nothing is held."""


def test_replays_begin_when_what_prepares_them_is_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Inputs are restarted and results poisoned on torch's stream, not the player's."""
    stream = Stream()

    def pending(module: ModuleType, name: str) -> None:
        inner = getattr(module, name)

        def noted(*arguments: object) -> None:
            assert "launch" not in stream.pending, f"{name} during a replay"
            stream.pending.append(name)
            inner(*arguments)

        monkeypatch.setattr(module, name, noted)

    for module in (arm, draft):
        monkeypatch.setattr(module, "player_for", lambda _: stream)
        pending(module, "restart")
    pending(arm, "poison")
    pending(draft, "poison_draft")
    found = check_backend(draft_backend(lambda *_: None), specs=[SPEC])
    assert len(found.checked) == 2


def test_a_switch_that_makes_numbers_wrong_is_told() -> None:
    """Every value of every switch is held against the bounds."""
    (failure,) = failures(switched(1.5, bitwise=False))
    assert failure.startswith("paper:fast=yes on ")
    assert "is off in the output by 0.5" in failure


def draft_backend(choose: Callable[[DraftProblem, int], None]) -> BackendSpec:
    """A backend whose draft is the reference's, and then what `choose` makes of it."""

    class PaperDraft(ReferenceDraftStep):
        def __init__(self, problem: DraftProblem) -> None:
            self._paper: DraftProblem | None = None
            super().__init__(problem)
            self._paper = problem

        def run(self, pass_index: int) -> None:
            super().run(pass_index)
            if self._paper is not None:
                choose(self._paper, pass_index)

    def build_draft(context: DraftContext) -> BuiltDraft:
        return ReferenceDraft(context.problem, PaperDraft(context.problem))

    return paper(build_draft=build_draft)


def write_nothing(problem: DraftProblem, index: int) -> None:
    """Leave one token as it was poisoned."""
    problem.passes[index].chosen[2] = -1


def choose_outside(problem: DraftProblem, index: int) -> None:
    """Choose a token that does not exist."""
    problem.passes[index].chosen[2] = 100


def choose_highest(problem: DraftProblem, index: int) -> None:
    """Let ties go to the highest id."""
    each = problem.passes[index]
    highest = 99 - each.base.flip(-1).argmax(-1)
    tied = each.base.max(-1).values > 10
    each.chosen[tied] = highest[tied]


def choose_worst(problem: DraftProblem, index: int) -> None:
    """Choose a token that is far from the best."""
    each = problem.passes[index]
    each.chosen[4] = each.base[4].argmin(-1)


def write_base(problem: DraftProblem, index: int) -> None:
    """Use the base logits as scratch."""
    problem.passes[index].base.add_(1.0)


@pytest.mark.parametrize(
    ("choose", "sentence"),
    [
        (write_nothing, "pass 0 left tokens unwritten"),
        (choose_outside, "pass 0 chose tokens that are not in the vocabulary's slice"),
        (choose_highest, "pass 0 did not take the lowest of the tokens that tie"),
        (choose_worst, "pass 0 chose a token whose logit is "),
        (write_base, "pass 0 wrote to base of pass 0"),
    ],
)
def test_a_draft_that_is_wrong_is_told(
    choose: Callable[[DraftProblem, int], None], sentence: str
) -> None:
    """Each token is the best one after the token before it, the lowest of equals."""
    first, *_ = failures(draft_backend(choose))
    assert first.startswith(f"draft of paper after {WHERE.removeprefix('paper on ')}")
    assert first.partition("17: ")[2].startswith(sentence)


def test_an_honest_draft_passes() -> None:
    """It is a check of its own."""
    found = check_backend(draft_backend(lambda *_: None), specs=[SPEC])
    assert len(found.checked) == 2


def reasonless(spec: LayerSpec, device: DeviceFacts) -> Any:  # noqa: ANN401
    """Answer no more than that it does not fit."""
    del spec, device
    return False


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (reasonless, "check answered False: it must answer with a list of all reasons"),
        (lambda *_: "no", "check answered 'no': it must answer with a list of all "),
        (lambda *_: [""], "check gave '' as a reason, which is not one line of text"),
        (
            lambda *_: [str(torch.ones(1).sum())],
            "check ran aten.ones, aten.sum",
        ),
    ],
)
def test_a_check_that_gives_no_reasons_is_told(check: Any, sentence: str) -> None:  # noqa: ANN401
    """A bare bool, or a text that is no list, cannot be shown to anyone."""
    (failure,) = failures(paper(check=check))
    assert failure.startswith(sentence)


def test_a_backend_that_ran_nothing_has_shown_nothing() -> None:
    """Its reasons are told, and the suite is not green."""
    cases = (
        paper(requires=Requires(tp_sizes=(2,))),
        paper(takes=lambda _: False),
        paper(waits=("combine",)),
    )
    reasons = (
        "needs tensor-parallel size 2, not 1",
        "its plan declined",
        "has kernels that wait for others (combine), which must first run in a ",
    )
    for backend, reason in zip(cases, reasons, strict=True):
        *head, left_out = failures(backend)
        assert head == ["it ran no layer of qwen3_moe", "left out:"]
        assert left_out.startswith(f"{WHERE.removeprefix('paper on ')}{reason}")


def test_a_declaration_is_read_critically() -> None:
    """Names that cannot be typed, regions that do not exist, bounds without a bound."""
    lie = replace(
        paper(),
        summary="",
        api_version=7,
        covers={Family.LLAMA: (Region.MOE,)},
        skippable=(Region.ATTENTION,),
        numerics=Numerics(bfloat16=2.0),
        switches=(
            Switch(name="a", values=("x", "y,z"), toggles=""),
            Switch(name="a", values=("x", "x"), toggles="something", off="y"),
        ),
    )
    assert failures(lie) == [
        "it speaks contract version 7, not 1",
        "its summary is empty",
        "its bound numerics.bfloat16 is 2.0, and must be in [0, 1)",
        "it covers moe of llama, which has attention, o_proj_all_reduce, mlp",
        "it calls regions skippable that it does not cover: attention",
        "two of its switches are called a",
        "switch a: 'y,z' cannot be written in --arms",
        "switch a does not say what it toggles",
        "switch a has a value twice",
        "switch a is off at y, and may be x, x",
    ]


def test_a_declaration_of_wrong_types_is_told_before_all_else() -> None:
    """Whatever reads such a field would raise instead."""
    fields: dict[str, Any] = {"covers": [Region.MOE], "build": None}
    assert failures(replace(paper(), **fields)) == [
        (
            "covers is [<Region.MOE: 'moe'>], and must be a mapping of families to "
            "tuples of regions"
        ),
        "build is None, and must be a function",
    ]


@dataclass
class PaperWhole:
    """All regions as one."""

    inner: ReferenceStep
    why_whole: str = "compiled as one graph"

    def run_layer(self, pass_index: int) -> None:
        """Run the regions in order."""
        for region in ALL:
            self.inner.run(region, pass_index)

    def expert_ids(self, pass_index: int) -> Tensor | None:
        """The reference's experts."""
        return self.inner.expert_ids(pass_index)

    def layer_bytes(self) -> int | None:
        """Nobody counts."""
        return None


def whole(context: BuildContext) -> Built:
    """Build all regions as one."""
    inner = ReferenceBuilt(context.problem).plan(StepShape(1, 6, 17))
    assert inner is not None
    return PaperBuilt(PaperWhole(inner), is_own)


def test_regions_that_are_declined_are_the_fallbacks() -> None:
    """What is wrong in one is no matter; the others are checked on its results."""

    def spoil(problem: Problem, region: Region, index: int) -> None:
        if region is Region.ATTENTION:
            problem.buffers[index].attn_out.fill_(torch.nan)

    left = {Region.ATTENTION: "runs at most 4 rows, not 6"}
    found = check_backend(paper(spoil, declines=lambda _: left), specs=[SPEC])
    assert (len(found.checked), found.left_out) == (1, [])
    assert failures(paper(spoil, declines=lambda _: {})) != []


def test_a_backend_that_declines_everything_has_shown_nothing() -> None:
    """The reference is not checked in its stead."""
    left = dict.fromkeys(ALL, "runs at most 4 rows, not 6")
    (failure, head, reason) = failures(paper(declines=lambda _: left))
    assert failure == "it ran no layer of qwen3_moe"
    assert head == "left out:"
    assert reason.endswith("declines all regions: runs at most 4 rows, not 6")


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        (
            {Region.MLP: "is dense"},
            "it declines mlp, which it does not cover",
        ),
        (
            {Region.MOE: ""},
            "declines says of moe '', which is not one line of text",
        ),
        (
            {Region.MOE: "one\ntwo"},
            "declines says of moe 'one\\ntwo', which is not one line of text",
        ),
    ],
)
def test_declining_needs_a_covered_region_and_a_reason(
    answer: dict[Region, str], failure: str
) -> None:
    """A region without a reason would be no fallback, and be asked to run."""
    assert any(
        found.endswith(failure) for found in failures(paper(declines=lambda _: answer))
    )


def test_declining_computes_nothing_and_is_always_alike() -> None:
    """It is asked before anything is made, and again when it is dispatched."""
    draws = random.Random(5)  # noqa: S311 (not a secret)

    def moody(_: LayerSpec) -> dict[Region, str]:
        torch.zeros(3)
        return {Region.MOE: f"is in mood {draws.random()}"}

    found = failures(paper(declines=moody))
    assert any("declines ran aten" in failure for failure in found), found
    assert any("the same layer twice" in failure for failure in found)


def test_a_whole_step_runs_all_regions() -> None:
    """It passes where it covers them all, and is told where it says it does not."""
    assert check_backend(paper(build=whole), specs=[SPEC]).failures == []
    part = {Family.QWEN3_MOE: (Region.ATTENTION, Region.MOE)}
    (failure,) = failures(paper(build=whole, covers=part))
    assert failure.endswith(
        ": its WholeStep runs o_proj_all_reduce, which it says it does not run"
    )
