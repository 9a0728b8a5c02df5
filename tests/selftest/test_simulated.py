import pytest

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from dataclasses import replace
from pathlib import Path

import torch

from layerscope.analyze.causes import Cause
from layerscope.experiment import CAPTURED
from layerscope.run import Run
from layerscope.runner.setting import RunnerOptions, Setting
from layerscope.selftest import studies
from layerscope.selftest.balancing import missing_ns, spinning
from layerscope.selftest.cases import CASES, Case, Demand
from layerscope.selftest.plan import Planted
from tests import handmade
from tests.selftest import simulated

CPU = torch.device("cpu")
NOTHING_SHARED = studies._Shared({})


def balanced(case: Case, _: torch.device) -> Case:
    """What would be found by measuring it."""
    arms = simulated.Arms.of(case.arms, case.reads)
    faster_ns = arms.pass_ns(case.base, CAPTURED) - arms.pass_ns(case.other, CAPTURED)
    spin_ns = missing_ns(case.other, faster_ns)
    return replace(case, other=spinning(case.other, spin_ns))


def measured(_: str, planted: Planted, *__: object) -> Run:
    """The run of a study."""
    return simulated.run(*planted)


@pytest.fixture
def setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Setting:
    """Studies whose runs are simulated."""
    monkeypatch.setattr(studies, "_measure", measured)
    monkeypatch.setattr(studies, "balanced", balanced)
    return Setting(CPU, handmade.environment(), None, RunnerOptions(output=tmp_path))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_ledger_puts_a_planted_change_where_it_was_planted(
    case: Case, setting: Setting
) -> None:
    """All of it, for there is no noise; what cancels is on both lines."""
    outcome = studies._case(case, setting, NOTHING_SHARED)
    assert outcome.judged.passed, outcome.judged.text
    assert outcome.ledger is not None
    lines = {line.cause: line.change.value for line in outcome.ledger.lines}
    moved = {cause for cause, value_ns in lines.items() if abs(value_ns) > 1.0}
    assert moved == case.expected
    assert outcome.ledger.residual.value == pytest.approx(0.0, abs=1.0)
    if case.demand is Demand.SAVING:
        assert outcome.judged.share_on_planted == pytest.approx(1.0)


def test_what_is_planted_elsewhere_is_found_out(setting: Setting) -> None:
    """A case that expects another line fails."""
    (case,) = (case for case in CASES if case.name == "gap")
    elsewhere = replace(case, expected=frozenset({Cause.LAUNCHES}))
    outcome = studies._case(elsewhere, setting, NOTHING_SHARED)
    assert not outcome.judged.passed
    assert outcome.judged.text == "most elsewhere: shorter gaps −25.60 µs"


def test_mixtures_are_taken_apart(setting: Setting) -> None:
    """Each line is what adding its cause changed."""
    outcomes = [*studies._mixtures(setting, NOTHING_SHARED)]
    assert [outcome.judged.passed for outcome in outcomes] == [True] * 3
    for outcome in outcomes:
        for part in outcome.added:
            assert part.line_ns == pytest.approx(part.marginal_ns, abs=1.0)
            assert part.marginal_ns < -500
