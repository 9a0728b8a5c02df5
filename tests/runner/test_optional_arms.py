"""Arms that nobody named: one that fails is left out, and the rest measured."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec
import pytest

from layerscope import study as plans
from layerscope.errors import BackendError
from layerscope.layers.draft_reference import ReferenceDraft, ReferenceDraftStep
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.reference import ReferenceBuilt, ReferenceStep
from layerscope.plugin import BuildContext, DraftContext
from layerscope.regions import Region
from layerscope.runner import RunnerOptions, profile
from layerscope.study import Study
from tests.runner import fakes
from tests.runner.fakes import AGAIN, FUSED, REFERENCE, Install


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Study:
    """Two arms, a few rounds of two-pass replays, and no time for more."""
    monkeypatch.setattr(plans, "MIN_ROUNDS", 1)
    made = fakes.study(REFERENCE, FUSED, samples=4, lengths=(2,))
    return msgspec.structs.replace(made, time_budget_s=1e-9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the run goes."""
    return tmp_path / "run"


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Make ``fused`` a backend."""
    return fakes.installer(monkeypatch)


def options(folder: Path, **changes: object) -> RunnerOptions:
    """On the CPU, nothing recorded."""
    fixed = {"output": folder, "device": "cpu", "recorder": "none"}
    return RunnerOptions(**(fixed | changes))  # type: ignore[arg-type]


class Broken(ReferenceStep):
    """A step that fails, or computes something else."""

    error: Exception | None = None

    def run(self, region: Region, pass_index: int) -> None:
        """Raise the error, or run and spoil the output."""
        if self.error is not None and pass_index:
            raise self.error
        super().run(region, pass_index)
        self._problem.buffers[pass_index].out.mul_(1.5)


def build_broken(
    context: BuildContext, error: Exception | None = None
) -> ReferenceBuilt:
    """Build a backend that fails in its second pass, or is wrong."""
    built = ReferenceBuilt(context.problem)
    step = Broken(context.problem, built._step._tables)
    step.error = error
    built._step = step
    return built


def fail_to_build(_: BuildContext) -> ReferenceBuilt:
    """Fail as foreign code does."""
    raise KeyError("gate")  # noqa: EM101 (foreign code)


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (fail_to_build, "KeyError: 'gate'"),
        (build_broken, "fused is wrong: relative error against the reference in"),
        (partial(build_broken, error=IndexError("no row 7")), "IndexError: no row 7"),
    ],
)
def test_an_arm_that_nobody_named_is_left_out_where_it_fails(
    study: Study,
    folder: Path,
    install: Install,
    build: Callable[[BuildContext], ReferenceBuilt],
    why: str,
) -> None:
    """The others are measured, and the run says which is missing and why."""
    install(build=build)
    run = profile(study, options(folder, optional=frozenset({"fused"})))
    assert run.header.status == "complete"
    assert [arm.name for arm in run.header.study.arms] == ["reference"]
    assert set(run.samples["arm"]) == {"reference", AGAIN}
    assert [build.arm for build in run.header.builds] == ["reference"]
    assert {row.arm for row in run.header.bytes} == {"reference"}
    assert {decision.arm for decision in run.header.decisions} == {"reference"}
    (line,) = [line for line in run.header.warnings if line.startswith("left out")]
    assert line.startswith(f"left out fused: {why}")


@pytest.mark.parametrize(
    ("build", "kind"), [(fail_to_build, KeyError), (build_broken, BackendError)]
)
def test_an_arm_that_was_named_ends_the_study_where_it_fails(
    study: Study,
    folder: Path,
    install: Install,
    build: Callable[[BuildContext], ReferenceBuilt],
    kind: type[Exception],
) -> None:
    """Foreign errors keep their traceback, with a note that names the arm."""
    install(build=build)
    with pytest.raises(kind) as caught:
        profile(study, options(folder))
    if kind is KeyError:
        assert caught.value.__notes__ == ["raised while arm 'fused' was built"]


def test_what_was_left_out_before_is_in_the_run(study: Study, folder: Path) -> None:
    """So that a report shows that an arm is missing."""
    alone = msgspec.structs.replace(study, arms=(REFERENCE,))
    run = profile(alone, options(folder, left_out=("other: needs a compiler",)))
    assert run.header.warnings[0] == "left out other: needs a compiler"


class WrongDraft(ReferenceDraftStep):
    """A draft whose last token is one too many."""

    def run(self, pass_index: int) -> None:
        """Draft, and move the last token."""
        super().run(pass_index)
        chosen = self._problem.passes[pass_index].chosen
        chosen[-1] = (chosen[-1] + 1) % self._problem.spec.vocab_slice


def build_wrong_draft(context: DraftContext) -> ReferenceDraft:
    """Build a draft that is wrong."""
    return ReferenceDraft(context.problem, WrongDraft(context.problem))


def test_a_wrong_draft_of_an_arm_that_nobody_named_leaves_its_layer(
    study: Study, folder: Path, install: Install
) -> None:
    """The arm is missing in the run of the draft alone, and nothing there names it."""
    install(build_draft=build_wrong_draft)
    draft = DraftSpec(model="paper-moe", vocab_size=64, rank=8, tokens=3)
    both = msgspec.structs.replace(study, draft=draft)
    run = profile(both, options(folder, optional=frozenset({"fused"})))
    assert [arm.name for arm in run.header.study.arms] == ["reference", "fused"]
    assert run.draft is not None
    header = run.draft.header
    assert header.status == "complete"
    assert [arm.name for arm in header.study.arms] == ["reference"]
    assert header.w2_reads == {"reference": 3}
    assert any(line.startswith("left out fused: ") for line in header.warnings)
