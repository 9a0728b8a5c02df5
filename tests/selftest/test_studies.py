from pathlib import Path

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from layerscope.analyze.causes import Cause
from layerscope.errors import BackendError, MeasurementError
from layerscope.experiment import SERIAL
from layerscope.progress import SilentProgress
from layerscope.run import Run
from layerscope.runner.setting import RunnerOptions, Setting
from layerscope.selftest import studies
from layerscope.selftest.cases import CASES
from layerscope.selftest.mixtures import MIXED
from layerscope.selftest.plan import planted_arms
from layerscope.study import CallableSpec
from tests import handmade
from tests.selftest.ledgers import comparison, exactly, ledger

VECTOR = torch.zeros(2, 1024, dtype=torch.int32)
REASON = "the device is out of order"
LESS = next(case for case in CASES if case.name == "less")


@pytest.fixture
def setting(tmp_path: Path) -> Setting:
    device = torch.device("cpu")
    return Setting(device, handmade.environment(), None, RunnerOptions(output=tmp_path))


def found(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    """Let every study give `run`, in which all of −10 µs is on one line."""
    lines = {Cause.FASTER: -10.0}
    monkeypatch.setattr(studies, "_measure", lambda *_: run)
    monkeypatch.setattr(studies, "ledger", lambda *_: ledger(-10.0, lines))
    monkeypatch.setattr(studies, "_compare", lambda *_: comparison(-10.0))
    monkeypatch.setattr(studies, "paired", lambda *_: exactly(-10.0))


def test_a_study_asks_for_serial_twins() -> None:
    """Of few captures, in little time; the first arm is the base."""
    study = studies.study_of(planted_arms("less")[0], VECTOR)
    assert [arm.name for arm in study.all_arms] == ["base", "other", "base (A/A)"]
    assert study.experiments == (SERIAL,)
    assert (study.captures, study.time_budget_s) == (5, 6.0)
    assert study.spec == CallableSpec(inputs=("int32 [2, 1024]",), tolerance=0.0)


@pytest.mark.parametrize(
    ("name", "is_edited"),
    [("trigger", True), ("branches", True), ("mixtures", True), ("gap", False)],
)
def test_a_study_whose_graphs_are_edited_has_more_time(
    name: str, *, is_edited: bool
) -> None:
    """For the process in which they run first."""
    study = studies.study_of(planted_arms(name)[0], VECTOR)
    assert (study.time_budget_s > 6.0) is is_edited


def test_a_case_is_judged(monkeypatch: pytest.MonkeyPatch, setting: Setting) -> None:
    """By the ledger of its run, whose warnings are kept."""
    found(monkeypatch, handmade.run(warnings=["it was late"]))
    outcome = studies._case(LESS, setting)
    assert (outcome.name, outcome.judged.passed) == ("less", True)
    assert outcome.warnings == ("it was late",)


@pytest.mark.parametrize("kind", [BackendError, MeasurementError])
def test_a_study_that_cannot_be_measured_has_failed(
    monkeypatch: pytest.MonkeyPatch, setting: Setting, kind: type[Exception]
) -> None:
    """With the reason, and without figures; one case and all mixtures alike."""

    def fail(*_: object) -> Run:
        raise kind(REASON)

    monkeypatch.setattr(studies, "_measure", fail)
    for outcome in (studies._case(LESS, setting), *studies._mixtures(setting)):
        assert not outcome.judged.passed
        assert outcome.judged.text == REASON
        assert (outcome.ledger, outcome.change) == (None, None)


def test_mixtures_share_a_study(
    monkeypatch: pytest.MonkeyPatch, setting: Setting
) -> None:
    """Each has the causes that it adds, with what adding them changed."""
    found(monkeypatch, handmade.run())
    outcomes = [*studies._mixtures(setting)]
    assert [outcome.name for outcome in outcomes] == [
        "work + fusion",
        "fusion + overlap",
        "work + fusion + overlap",
    ]
    assert [len(outcome.added) for outcome in outcomes] == [2, 2, 3]
    assert [outcome.judged.passed for outcome in outcomes] == [False] * 3
    last = [(part.name, part.line_ns, part.marginal_ns) for part in outcomes[2].added]
    assert last == [
        ("work", -10_000.0, -10_000.0),
        ("fusion", 0.0, -10_000.0),
        ("overlap", 0.0, -10_000.0),
    ]


def test_arms_are_compared_against_the_noise_of_the_first() -> None:
    """By anchors, with the floor of its second capture."""
    compared = studies._compare(handmade.run(), "reference", "fused")
    assert compared.difference.value == pytest.approx(-10_000.0)
    assert compared.verdict == "faster"
    again = studies._compare(handmade.run(), "reference", "reference (A/A)")
    assert again.verdict == "no difference"


def test_phases_are_named_by_their_study() -> None:
    """Whoever waits sees which case is measured."""
    told: list[tuple[str, int]] = []

    class Listening(SilentProgress):
        def phase(self, name: str, total: int) -> None:
            told.append((name, total))

    studies._Named("gap", Listening()).phase("anchors", 3)
    assert told == [("gap: anchors", 3)]


def test_the_arms_of_mixtures_are_those_of_its_study() -> None:
    """The study has all of them, in their order."""
    study = studies.study_of(MIXED, VECTOR)
    assert [arm.name for arm in study.arms] == ["base", "work", "fusion", "overlap"]
