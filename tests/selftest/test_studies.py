from pathlib import Path

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from layerscope.analyze.causes import Cause
from layerscope.errors import BackendError, MeasurementError
from layerscope.experiment import SERIAL
from layerscope.progress import SilentProgress
from layerscope.record.recorder import Recorder
from layerscope.run import Run
from layerscope.run_header import KernelCost
from layerscope.runner.bench import Bench
from layerscope.runner.first_runs import KnownRuns
from layerscope.runner.launches import Note
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
NOTHING_SHARED = studies._Shared({})
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
    assert (study.captures, study.rounds, study.time_budget_s) == (5, 12, 12.0)
    assert study.spec == CallableSpec(inputs=("int32 [2, 1024]",), tolerance=0.0)


def test_what_is_found_once_serves_all_studies(
    monkeypatch: pytest.MonkeyPatch, setting: Setting
) -> None:
    """First runs were made before; the first study finds what the recorder costs."""
    cost = KernelCost(blocks=132, added_ns=130.0, low_ns=120.0, high_ns=140.0)
    calibrated: list[bool] = []

    def run_phases(bench: Bench, _: Recorder | None, __: Note) -> None:
        assert bench.recipe is shared.first_runs[bench.writer.path.name]
        header = bench.writer.header
        calibrated.append(not header.observer_costs)
        header.observer_costs = header.observer_costs or [cost]

    monkeypatch.setattr(torch.cuda, "synchronize", lambda _: None)
    monkeypatch.setattr(studies, "run_phases", run_phases)
    shared = studies._Shared({"less": KnownRuns({}), "swap": KnownRuns({})})
    runs = [
        studies._measure(name, planted_arms(name), setting, shared)
        for name in ("less", "swap")
    ]
    assert calibrated == [True, False]
    assert [run.header.observer_costs for run in runs] == [[cost], [cost]]


def test_a_case_is_judged(monkeypatch: pytest.MonkeyPatch, setting: Setting) -> None:
    """By the ledger of its run, whose warnings are kept."""
    found(monkeypatch, handmade.run(warnings=["it was late"]))
    outcome = studies._case(LESS, setting, NOTHING_SHARED)
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
    case = studies._case(LESS, setting, NOTHING_SHARED)
    for outcome in (case, *studies._mixtures(setting, NOTHING_SHARED)):
        assert not outcome.judged.passed
        assert outcome.judged.text == REASON
        assert (outcome.ledger, outcome.change) == (None, None)


def test_mixtures_share_a_study(
    monkeypatch: pytest.MonkeyPatch, setting: Setting
) -> None:
    """Each has the causes that it adds, with what adding them changed."""
    found(monkeypatch, handmade.run())
    outcomes = [*studies._mixtures(setting, NOTHING_SHARED)]
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
