from pathlib import Path

import msgspec
import pytest

from layerscope import study as plans
from layerscope.errors import BackendError, MeasurementError
from layerscope.experiment import SERIAL, Experiment
from layerscope.layers.draft_reference import ReferenceDraft, ReferenceDraftStep
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.reference import ReferenceBuilt
from layerscope.plugin import BuildContext, DraftContext, Switch
from layerscope.run import load
from layerscope.run_header import IdleSwitch
from layerscope.runner import RunnerOptions, phases, profile
from layerscope.runner.bench import Bench
from layerscope.runner.drafting import draft_study
from layerscope.study import Arm, Study, SwitchStudy
from layerscope.switches import TakenApart
from tests.runner import fakes
from tests.runner.fakes import FUSED, REFERENCE, Install

DRAFT = DraftSpec(model="paper-moe", vocab_size=64, rank=8, tokens=3)


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Study:
    """Two arms, six rounds of two-pass replays, and no time for more."""
    monkeypatch.setattr(plans, "MIN_ROUNDS", 1)
    made = fakes.study(REFERENCE, FUSED, samples=4, lengths=(2,))
    return msgspec.structs.replace(made, time_budget_s=1e-9, draft=DRAFT)


@pytest.fixture
def options(tmp_path: Path) -> RunnerOptions:
    """A new folder, on the CPU, nothing recorded."""
    return RunnerOptions(output=tmp_path / "run", device="cpu", recorder="none")


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make ``fused`` a backend."""
    return fakes.installer(monkeypatch)


def test_a_draft_is_the_same_study_of_another_problem_in_its_share_of_the_time() -> (
    None
):
    """Arms, samples, lengths and seed stay; base logits have eight steps."""
    layer = msgspec.structs.replace(
        fakes.study(seed=7), time_budget_s=100.0, draft=DRAFT
    )
    layer = msgspec.structs.replace(layer, arms=(REFERENCE,))
    draft = draft_study(layer)
    assert draft is not None
    assert draft.spec == DRAFT
    assert draft.study == msgspec.structs.replace(
        layer, spec=DRAFT, draft=None, steps=8, time_budget_s=30.0
    )
    assert draft_study(msgspec.structs.replace(layer, draft=None)) is None


def test_a_draft_tells_its_own_switches_apart(study: Study) -> None:
    """Not those of the layer, which are idle there."""
    layer_apart, apart = (
        TakenApart(backend=name, off=f"{name} off", on=name, switches=())
        for name in ("layered", "fused")
    )
    off, delayed = Arm(backend="fused", label="fused off"), Experiment(delay="/gate_up")
    layer = msgspec.structs.replace(
        study,
        taken_apart=(layer_apart,),
        switch_arms=(Arm(backend="layered", label="layered off"),),
        switch_experiments={"layered": (SERIAL, delayed)},
        draft_switches=SwitchStudy(
            taken_apart=(apart,), arms=(off,), experiments={"fused": (SERIAL,)}
        ),
    )
    draft = draft_study(layer)
    assert draft is not None
    assert draft.study.taken_apart == (apart,)
    assert draft.study.switch_arms == (off,)
    assert draft.study.switch_experiments == {"fused": (SERIAL,)}
    assert draft.study.draft_switches is None


def test_each_run_says_which_switches_are_idle_in_it(
    study: Study, options: RunnerOptions, install: Install
) -> None:
    """Of the layer in the layer's header, of the draft in the draft's."""
    install(
        switches=(
            Switch(name="early", values=("on", "off"), toggles="when"),
            Switch(name="once", values=("on", "off"), toggles="how often"),
            Switch(name="drafted", values=("on", "off"), toggles="it", of="draft"),
        ),
        idle=lambda spec, device: {"once": f"{spec.rows} rows on {device.type}"},
        idle_in_draft=lambda spec, _: {"early": f"{spec.tokens} tokens"},
    )
    run = profile(study, options)
    assert run.header.idle_switches == [
        IdleSwitch(backend="fused", switch="once", reason="6 rows on cpu"),
        IdleSwitch(
            backend="fused",
            switch="drafted",
            reason="it is of the draft, and this is the layer",
            of_other=True,
        ),
    ]
    assert run.draft is not None
    assert run.draft.header.idle_switches == [
        IdleSwitch(backend="fused", switch="early", reason="3 tokens")
    ]


def test_what_is_idle_in_the_draft_is_asked_before_the_layer_is_measured(
    study: Study, options: RunnerOptions, install: Install
) -> None:
    """A backend that cannot tell is refused; nothing is made."""
    install(idle_in_draft=lambda *_: None)
    with pytest.raises(MeasurementError) as raised:
        profile(study, options)
    assert str(raised.value) == (
        "fused cannot be checked (idle_in_draft answered None: it must map switches to "
        "reasons); tell its author; see what fits here: layerscope backends"
    )
    assert not options.output.exists()
    profile(msgspec.structs.replace(study, draft=None), options)


def test_the_draft_is_a_run_of_its_own_beside_the_layer(
    study: Study, options: RunnerOptions, install: Install
) -> None:
    """Its own anchors, numerics and builds, and how often each arm reads w2."""
    install()
    run = profile(study, options)
    assert run.header.status == "complete"
    draft = run.draft
    assert draft is not None
    assert draft.header.status == "complete"
    assert draft.header.study.spec == DRAFT
    assert draft.header.w2_reads == {"reference": 3, "fused": 3}
    assert draft.header.weights == "random, seed 0"
    names = ["reference", "fused", "reference (A/A)"]
    assert [(c.arm, c.error, c.bound) for c in draft.header.numerics] == [
        (name, 0.0, 1e-3) for name in names
    ]
    assert set(draft.samples["arm"]) == set(names)
    assert draft.samples["required_bytes"].unique().to_list() == [
        2 * DRAFT.required_bytes
    ]
    assert [(b.arm, b.region, b.required) for b in draft.header.bytes] == [
        (name, "draft", DRAFT.required_bytes) for name in ("reference", "fused")
    ]


def decline(context: DraftContext) -> ReferenceDraft:
    """Build a draft that has no step for anything."""

    class Declines(ReferenceDraft):
        def plan(self, spec: DraftSpec) -> None:
            del spec

    return Declines(context.problem, ReferenceDraftStep(context.problem))


@pytest.mark.parametrize("build_draft", [None, decline])
def test_an_arm_without_a_draft_is_left_out_by_name(
    study: Study, options: RunnerOptions, install: Install, build_draft: object
) -> None:
    """The fallback's draft under its name would be another arm's times."""
    install(build_draft=build_draft)
    draft = profile(study, options).draft
    assert draft is not None
    assert [arm.name for arm in draft.header.study.arms] == ["reference"]
    assert "fused has no draft for this step" in draft.header.warnings
    assert "fused" not in set(draft.samples["arm"])


def test_where_no_arm_has_a_draft_there_is_no_run_of_one(
    study: Study, options: RunnerOptions, install: Install
) -> None:
    """The layer is measured all the same."""
    install(build_draft=None)
    run = profile(msgspec.structs.replace(study, arms=(FUSED,)), options)
    assert run.header.status == "complete"
    assert run.draft is None
    assert "no arm has a draft, so none was measured" in run.header.warnings
    assert not (options.output / "draft").exists()


@pytest.mark.parametrize(
    ("has_draft", "budget_s"), [(True, "70"), (False, "100"), (None, "100")]
)
def test_the_draft_takes_its_part_of_the_time_only_where_there_is_one(
    study: Study,
    options: RunnerOptions,
    install: Install,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_draft: bool | None,
    budget_s: str,
) -> None:
    """The layer has all of it where no draft is asked for, and where none can be."""
    install(**({} if has_draft else {"build_draft": None}))
    monkeypatch.setattr(
        Bench, "must_stop", lambda bench, *_: setattr(bench, "is_cut", 1)
    )
    draft = None if has_draft is None else DRAFT
    plan = msgspec.structs.replace(
        study, arms=(FUSED,), draft=draft, time_budget_s=100.0, captures=1
    )
    monkeypatch.setattr(phases, "_ANCHOR_SHARE", 0.0)
    run = profile(plan, options)
    (line,) = [line for line in run.header.warnings if "of the time budget" in line]
    assert line.startswith(f"its {budget_s} s of the time budget ended")


def wrong(context: DraftContext) -> ReferenceDraft:
    """Build a draft whose last token is one too many."""

    class Wrong(ReferenceDraftStep):
        def run(self, pass_index: int) -> None:
            super().run(pass_index)
            chosen = context.problem.passes[pass_index].chosen
            chosen[-1] = (chosen[-1] + 1) % context.problem.spec.vocab_slice

    return ReferenceDraft(context.problem, Wrong(context.problem))


def test_a_draft_with_a_wrong_token_is_refused_and_the_layer_kept(
    study: Study, options: RunnerOptions, install: Install
) -> None:
    """Before it is timed; the layer's run was whole before."""
    install(build_draft=wrong)
    with pytest.raises(
        BackendError,
        match=r"fused is wrong: .*it was not timed; the layer's run is whole: ",
    ):
        profile(study, options)
    run = load(options.output)
    assert run.header.status == "complete"
    assert run.draft is None
    assert not (options.output / "draft").exists()


def test_the_first_arm_is_built_twice_in_the_layer_and_in_the_draft(
    study: Study, options: RunnerOptions, install: Install
) -> None:
    """Its second build is the A/A arm's: where memory lies is noise like any other."""
    layers: list[ReferenceBuilt] = []
    drafts: list[ReferenceDraft] = []

    def build(context: BuildContext) -> ReferenceBuilt:
        layers.append(ReferenceBuilt(context.problem))
        return layers[-1]

    def build_draft(context: DraftContext) -> ReferenceDraft:
        problem = context.problem
        drafts.append(ReferenceDraft(problem, ReferenceDraftStep(problem)))
        return drafts[-1]

    install(build=build, build_draft=build_draft)
    arms = msgspec.structs.replace(study, arms=(FUSED, REFERENCE))
    run = profile(arms, options)
    assert (len(layers), len(drafts)) == (2, 2)
    assert run.draft is not None
    for header in (run.header, run.draft.header):
        assert [build.arm for build in header.builds] == ["fused", "reference"]
        assert {check.arm for check in header.numerics} == {
            *("fused", "reference", "fused (A/A)"),
        }
