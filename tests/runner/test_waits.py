"""Kernels that gave up waiting: the arm is refused, and nothing of it is kept."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope import study as plans
from layerscope.errors import BackendError, DeviceLostError, MeasurementError
from layerscope.layers.draft_reference import ReferenceDraft, ReferenceDraftStep
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.reference import ReferenceBuilt
from layerscope.plugin import BuildContext, DraftContext, Waits
from layerscope.report import build_report
from layerscope.run import Run, load
from layerscope.runner import RunnerOptions, profile
from layerscope.runner.bench import Bench
from layerscope.runner.waits import has_given_up, refuse_given_up, trusting_waits
from layerscope.study import Study
from tests import handmade
from tests.runner import fakes
from tests.runner.fakes import AGAIN, FUSED, REFERENCE, Install

DRAFT = DraftSpec(model="paper-moe", vocab_size=64, rank=8, tokens=3)
OTHERS = {"reference": ["fused"], "fused": ["reference", AGAIN]}
"""By arm that gives up: those whose rows stay."""


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Two arms, and rows of each that were kept before."""
    made = fakes.bench(fakes.study(), tmp_path / "run", lambda *_: 1)
    made.writer.add_samples(handmade.samples(("anchor",)))
    return made


def give_up(bench: Bench, arm: str) -> None:
    """As a kernel of `arm` would."""
    fakes.workload(bench).arms[arm].waits.abort.fill_(1)


def rows(bench: Bench) -> Run:
    """What the run has."""
    return bench.writer.finish("partial")


def test_what_gave_up_is_told_once_and_cleared(bench: Bench) -> None:
    """Of the arm that did; the arm that repeats it is the same build."""
    give_up(bench, "reference")
    workload = bench.workload
    assert not has_given_up(workload, "fused")
    assert has_given_up(workload, AGAIN)
    assert not has_given_up(workload, "reference")


def test_a_block_in_which_nobody_gave_up_is_kept(bench: Bench) -> None:
    """All of it."""
    with trusting_waits(bench, "the anchors"):
        bench.writer.add_samples(handmade.samples(("after",)))
    assert_frame_equal(rows(bench).samples, handmade.samples(), check_row_order=False)
    assert bench.writer.header.warnings == []


def end(bench: Bench, arm: str, error: type[BaseException] | None = None) -> None:
    """A block in which `arm` gives up, and that `error` ends."""
    with trusting_waits(bench, "the anchors of capture 1"):
        bench.writer.add_kernels(handmade.kernels())
        give_up(bench, arm)
        if error is not None:
            raise error


@pytest.mark.parametrize("arm", ["reference", "fused"])
def test_of_an_arm_that_gave_up_nothing_is_kept(bench: Bench, arm: str) -> None:
    """Nor of the one that repeats it; rows of others stay."""
    with pytest.raises(BackendError) as raised:
        end(bench, arm)
    assert str(raised.value) == (
        f"{arm} gave up waiting in the anchors of capture 1; nothing of it is kept; "
        "run again, or leave it out of --arms"
    )
    kept = pl.col("arm").is_in(OTHERS[arm])
    run, samples = rows(bench), handmade.samples(("anchor",))
    assert_frame_equal(run.samples, samples.filter(kept), check_row_order=False)
    assert_frame_equal(
        run.kernels, handmade.kernels().filter(kept), check_row_order=False
    )
    assert not has_given_up(bench.workload, arm)


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt, MeasurementError, ZeroDivisionError, RuntimeError]
)
def test_a_block_that_ends_otherwise_is_read_all_the_same(
    bench: Bench, error: type[BaseException]
) -> None:
    """What ended it is what is told; the arm that gave up is a warning."""
    with pytest.raises(error):
        end(bench, "fused", error)
    assert bench.writer.header.warnings == [
        "fused gave up waiting in the anchors of capture 1; nothing of it is kept"
    ]
    assert set(rows(bench).samples["arm"]) == {"reference", AGAIN}


def test_a_device_that_was_lost_is_not_asked(bench: Bench) -> None:
    """Reading its memory would fail."""
    with pytest.raises(DeviceLostError):
        end(bench, "fused", DeviceLostError)
    assert has_given_up(bench.workload, "fused")


def test_a_device_that_cannot_be_read_hides_no_error(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ended the block is told, not that nothing can be read after it."""

    def wait() -> None:
        msg = "CUDA error: an illegal memory access was encountered"
        raise RuntimeError(msg)

    monkeypatch.setattr(bench.player, "wait", wait)
    with pytest.raises(ZeroDivisionError):
        end(bench, "fused", ZeroDivisionError)
    assert bench.writer.header.warnings == []


def test_of_an_arm_that_is_refused_nothing_is_kept(bench: Bench) -> None:
    """What was measured of it before is taken out; another one passes."""
    give_up(bench, "fused")
    refuse_given_up(bench, "reference")
    with pytest.raises(BackendError) as raised:
        refuse_given_up(bench, "fused")
    assert str(raised.value) == (
        "fused is wrong: its kernels gave up waiting; nothing of it is kept"
    )
    assert set(rows(bench).samples["arm"]) == {"reference", AGAIN}
    assert not has_given_up(bench.workload, "fused")


class GivingUp:
    """A backend and its draft, of which one that is built gives up in a phase.

    It is the progress of the study too.
    """

    def __init__(self, when: str, number: int) -> None:
        self._when = when
        self._number = number  # of its builds, from 0
        self._phase = ""
        self._waits: list[Waits] = []

    def build(self, context: BuildContext) -> ReferenceBuilt:
        """The reference."""
        self._waits.append(context.waits)
        return ReferenceBuilt(context.problem)

    def build_draft(self, context: DraftContext) -> ReferenceDraft:
        """The reference's."""
        self._waits.append(context.waits)
        return ReferenceDraft(context.problem, ReferenceDraftStep(context.problem))

    def phase(self, name: str, total: int) -> None:
        """Note what is done."""
        del total
        self._phase = name

    def advance(self, steps: int = 1) -> None:
        """Give up if it is time."""
        del steps
        if self._phase.startswith(self._when) and len(self._waits) > self._number:
            self._waits[self._number].abort.fill_(1)

    def note(self, text: str) -> None:
        """Nothing is shown."""


@pytest.fixture
def study(monkeypatch: pytest.MonkeyPatch) -> Study:
    """Two arms, a few rounds of two-pass replays, and no time for more."""
    monkeypatch.setattr(plans, "MIN_ROUNDS", 1)
    made = fakes.study(REFERENCE, FUSED, samples=4, lengths=(2,))
    return msgspec.structs.replace(made, time_budget_s=1e-9)


@pytest.fixture
def measure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., tuple[str, Run]]:
    """Carry a study out in which ``fused`` gives up; the error, and what is on disk."""
    install: Install = fakes.installer(monkeypatch)

    def measure(
        study: Study, when: str, number: int = 0, **changes: object
    ) -> tuple[str, Run]:
        giving_up = GivingUp(when, number)
        install(build=giving_up.build, build_draft=giving_up.build_draft)
        options = RunnerOptions(
            output=tmp_path / "run", device="cpu", recorder="none", progress=giving_up
        )
        with pytest.raises(BackendError) as raised:
            profile(study, replace(options, **changes))  # type: ignore[arg-type]
        return str(raised.value), load(options.output)

    return measure


def test_an_arm_that_gives_up_in_anchors_leaves_a_partial_run(
    study: Study, measure: Callable[..., tuple[str, Run]]
) -> None:
    """That can be shown, and says why there is nothing of the arm."""
    why, run = measure(study, "anchors, capture 1")
    assert why == (
        "fused gave up waiting in the anchors of capture 1; nothing of it is kept; run "
        "again, or leave it out of --arms"
    )
    assert (run.header.status, run.header.status_reason) == ("partial", why)
    assert set(run.samples["arm"]) == {"reference", AGAIN}
    assert any(why in line for line in build_report(run).warnings)


def test_the_first_arm_may_give_up_too(
    study: Study, measure: Callable[..., tuple[str, Run]]
) -> None:
    """The run can be shown without what others are compared with."""
    turned = msgspec.structs.replace(study, arms=(FUSED, REFERENCE))
    why, run = measure(turned, "anchors, capture 1")
    assert set(run.samples["arm"]) == {"reference"}
    assert any(why in line for line in build_report(run).warnings)


def test_the_arm_that_repeats_the_first_may_give_up_alone(
    study: Study, measure: Callable[..., tuple[str, Run]]
) -> None:
    """It is a build of its own; the first stays."""
    turned = msgspec.structs.replace(study, arms=(FUSED, REFERENCE))
    why, run = measure(turned, "anchors, capture 1", number=1)
    assert why.startswith("fused (A/A) gave up waiting in the anchors of capture 1; ")
    assert set(run.samples["arm"]) == {"fused", "reference"}


@pytest.mark.parametrize(
    ("when", "told"),
    [
        ("recording", "recorded capture 1"),
        ("anchors again", "the anchors after it"),
    ],
)
def test_an_arm_that_gives_up_later_is_told_too(
    study: Study, measure: Callable[..., tuple[str, Run]], when: str, told: str
) -> None:
    """While it is recorded, or once nobody watches any more."""
    why, run = measure(study, when, recorder="torch.profiler")
    assert why.startswith(f"fused gave up waiting in {told}; nothing of it is kept")
    assert set(run.samples["arm"]) == {"reference", AGAIN}
    assert "fused" not in set(run.kernels["arm"])


def test_a_draft_that_gives_up_leaves_the_layer_whole(
    study: Study, measure: Callable[..., tuple[str, Run]]
) -> None:
    """The draft's run is partial."""
    drafting = msgspec.structs.replace(study, draft=DRAFT)
    why, run = measure(drafting, "anchors, capture 1", number=1)
    begin, _, end = why.partition("; run again, or leave it out of --arms; ")
    assert begin == (
        "fused gave up waiting in the anchors of capture 1; nothing of it is kept"
    )
    assert end.startswith("the layer's run is whole: ")
    assert run.header.status == "complete"
    assert set(run.samples["arm"]) == {"reference", "fused", AGAIN}
    assert run.draft is not None
    assert run.draft.header.status == "partial"
    assert set(run.draft.samples["arm"]) == {"reference", AGAIN}


def test_an_arm_that_gives_up_while_it_is_checked_is_not_timed(
    study: Study, measure: Callable[..., tuple[str, Run]]
) -> None:
    """Whatever it computes."""
    drafting = msgspec.structs.replace(study, draft=DRAFT)
    why, run = measure(drafting, "building the draft of fused", number=1)
    assert why.startswith("fused is wrong: its kernels gave up waiting; nothing of it")
    assert run.draft is None
