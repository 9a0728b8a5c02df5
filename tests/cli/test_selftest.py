import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from types import ModuleType

import pytest
import torch

import layerscope.graphs.device
import layerscope.selftest.machine
from layerscope.cli.main import main
from layerscope.environment import DeviceFacts
from layerscope.runner import RunnerOptions
from layerscope.selftest.judging import Judged, Outcome
from layerscope.selftest.plan import NAMES

PASSED = Outcome(
    name="gap",
    difference="",
    expected=frozenset(),
    judged=Judged(passed=True, share_on_planted=0.99, text="fine"),
)
FAILED = replace(PASSED, judged=replace(PASSED.judged, passed=False))


def plays(
    monkeypatch: pytest.MonkeyPatch, *outcomes: Outcome
) -> list[tuple[Sequence[str], RunnerOptions]]:
    """Let the self-test end with `outcomes`; what it was asked for."""
    asked: list[tuple[Sequence[str], RunnerOptions]] = []

    def run_selftest(
        names: Sequence[str], _: torch.device, options: RunnerOptions
    ) -> list[Outcome]:
        asked.append((names, options))
        return [*outcomes]

    studies = ModuleType("layerscope.selftest.studies")
    studies.run_selftest = run_selftest  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, studies.__name__, studies)
    device = torch.device("cuda", 0)
    monkeypatch.setattr(layerscope.selftest.machine, "usable_device", lambda: device)
    facts = DeviceFacts(type="cuda", name="Paper GPU", driver="580")
    monkeypatch.setattr(layerscope.graphs.device, "facts", lambda _: facts)
    return asked


def test_all_passed_is_exit_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is all of stdout; where the runs are comes after it."""
    asked = plays(monkeypatch, PASSED)
    assert main(["selftest", "-o", "here"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("selftest: 1 of 1 passed\n")
    assert err.splitlines()[-1] == (
        "saved; see one of the runs: layerscope show here/trigger"
    )
    ((names, options),) = asked
    assert names == NAMES
    assert (str(options.output), options.command[:2]) == (
        "here",
        ["layerscope", "selftest"],
    )


def test_one_failed_is_exit_1(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table is printed all the same, here for programs."""
    plays(monkeypatch, PASSED, FAILED)
    assert main(["selftest", "--json", "-o", "here"]) == 1
    document = json.loads(capsys.readouterr().out)
    rows = document["tables"][0]["rows"]
    assert [row["verdict"] for row in rows] == ["pass", "FAIL"]
    assert rows[0]["on_planted_percent"] == 99.0


def test_some_cases_in_their_usual_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each once, however they are asked for."""
    asked = plays(monkeypatch, PASSED)
    assert main(["selftest", "--only", "mixtures, gap,gap", "-o", "here"]) == 0
    assert asked[0][0] == ("gap", "mixtures")


def test_an_unknown_case_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """With those that there are, before anything is looked at."""
    assert main(["selftest", "--only", "gapp"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: --only: there is no case 'gapp'; there are trigger,")


def test_the_list_needs_no_gpu(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what would be planted, in text or for programs."""
    asked = plays(monkeypatch)
    assert main(["selftest", "--list"]) == 0
    assert "20 fewer kernels" in capsys.readouterr().out
    assert main(["selftest", "--list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["tables"][0]["rows"]
    assert [row["case"] for row in rows] == [*NAMES]
    assert asked == []


def test_without_a_gpu_it_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 1: this machine cannot measure what was asked."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["selftest"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: selftest runs CUDA kernels of its own and needs an")


def test_an_interrupt_is_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a word."""

    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(layerscope.selftest.machine, "usable_device", interrupted)
    assert main(["selftest"]) == 130
    assert capsys.readouterr().err == "interrupted\n"
