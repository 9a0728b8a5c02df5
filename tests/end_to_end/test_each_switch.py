"""``profile --each-switch`` of a backend of switches, from the command to tables."""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
from torch import Tensor

from layerscope import registry
from layerscope.cli.main import main
from layerscope.layers.reference import BACKEND, ReferenceBuilt
from layerscope.plugin import (
    BuildContext,
    Step,
    StepShape,
    Switch,
    SwitchKind,
    WholeStep,
)
from layerscope.regions import Region
from layerscope.run import load

SMALL: Final = (
    *("profile", "--device", "cpu", "--model", "tiny-moe", "--context", "16"),
    *("--samples", "24", "--passes", "3", "--captures", "3", "--recorder", "none"),
    *("--no-draft", "--time-budget", "2", "--each-switch"),
)
SECONDS: Final = {"rested": 0.04, "awake": 0.02}


class Paper:
    """The reference, which sleeps so many seconds for each switch that is off."""

    def __init__(self, context: BuildContext) -> None:
        self._problem = context.problem
        self._switches: Mapping[str, str] = context.switches
        self._plain = ReferenceBuilt(context.problem)
        self.device_bytes = 0

    def plan(self, shape: StepShape) -> Step | WholeStep | None:
        """Always, the reference's own step inside."""
        step = self._plain.plan(shape)
        assert step is not None
        self._step = step
        return self

    def run(self, region: Region, pass_index: int) -> None:
        """Run the region, and sleep in the last."""
        self._step.run(region, pass_index)
        if region is Region.MOE:
            off = [name for name, value in self._switches.items() if value == "off"]
            time.sleep(sum(SECONDS.get(name, 0.0) for name in off))
            if "exact" in off:
                self._problem.buffers[pass_index].out.mul_(1 + 1e-6)

    def expert_ids(self, pass_index: int) -> Tensor | None:
        """The reference's."""
        return self._step.expert_ids(pass_index)

    def touched_bytes(self, region: Region) -> int | None:
        """The reference's."""
        return self._step.touched_bytes(region)


def install(monkeypatch: pytest.MonkeyPatch, *switches: Switch, **idle: str) -> None:
    """Make ``paper`` a backend with `switches`, of which some are `idle`."""
    backend = replace(
        BACKEND,
        name="paper",
        build=Paper,
        build_draft=None,
        switches=switches,
        idle=lambda *_: idle,
    )
    monkeypatch.setitem(sys.modules, "paper_b", SimpleNamespace(BACKEND=backend))
    entry = EntryPoint("paper", "paper_b:BACKEND", "layerscope.backends")
    monkeypatch.setattr(registry, "entry_points", lambda **_: [entry])


def switch(name: str, *, bitwise: bool = True) -> Switch:
    """A switch that only moves work."""
    return Switch(
        name=name,
        values=("on", "off"),
        toggles="rest",
        bitwise=bitwise,
        kind=SwitchKind.OVERLAP,
        starts_early=("gate_up",),
    )


def test_each_switch_is_told_apart_in_one_study(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Four arms beside the one that was named; the saved run shows the same tables.

    The fourth is "all off" built again: what the two differ by is the floor.
    """
    install(monkeypatch, switch("rested"), switch("awake", bitwise=False))
    folder = tmp_path / "run"
    assert main([*SMALL, "--arms", "paper", "-o", str(folder)]) == 0
    capsys.readouterr()
    header = load(folder).header
    assert [arm.name for arm in header.study.arms] == ["paper"]
    assert [arm.name for arm in header.study.switch_arms] == [
        "paper all off",
        "paper:awake=off",
        "paper:rested=off",
        "paper all off (built again)",
    ]
    assert [(check.switch, check.is_equal) for check in header.bits] == [
        ("rested", True),
        ("rested", True),
        ("awake", True),
        ("awake", True),
    ]
    assert {check.arm for check in header.numerics} == {
        *("paper", "paper all off", "paper:awake=off", "paper:rested=off"),
        *("paper all off (built again)", "paper (A/A)"),
    }
    assert main(["show", str(folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    tables = {table["title"]: table for table in shown["tables"]}
    found = tables["switches of paper, change that each makes"]["rows"]
    assert [row["switch"] for row in found] == ["rested", "awake"]
    assert all(row["added_ns"]["value"] < -10e6 for row in found)
    assert all(row["last_ns"]["value"] < -10e6 for row in found)
    assert [row["bits"] for row in found] == [
        "equal bits, as it says",
        "equal bits, it says nothing of them",
    ]


def test_a_switch_that_changes_nothing_has_the_reason_for_its_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No arm turns it, and the arms of the backend have a line."""
    install(monkeypatch, switch("rested"), switch("awake"), awake="it never sleeps")
    folder = tmp_path / "run"
    assert main([*SMALL, "--arms", "paper", "-o", str(folder)]) == 0
    header = load(folder).header
    assert [arm.name for arm in header.study.switch_arms] == [
        "paper:rested=off",
        "paper:rested=off (built again)",
    ]
    capsys.readouterr()
    assert main(["show", str(folder), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    tables = {table["title"]: table for table in shown["tables"]}
    rows = tables["switches of paper, change that each makes"]["rows"]
    assert [(row["switch"], row["idle"]) for row in rows] == [
        ("rested", None),
        ("awake", "it never sleeps"),
    ]
    assert "paper: awake changes nothing here: it never sleeps" in shown["notes"]


def test_a_switch_that_does_not_keep_its_bits_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is within the bound of the arm, but not what it says; nothing is timed."""
    install(monkeypatch, switch("exact"))
    folder = tmp_path / "run"
    assert main([*SMALL, "--arms", "paper", "-o", str(folder)]) == 1
    assert "its switch exact says that they are; nothing was timed" in (
        capsys.readouterr().err.replace("\n", " ")
    )
    assert not (folder / "run.json").exists()


def test_arms_without_switches_are_refused_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line says where switches are listed."""
    folder = tmp_path / "run"
    assert main([*SMALL, "--arms", "reference", "-o", str(folder)]) == 2
    assert "no arm has switches (reference)" in capsys.readouterr().err
    assert not folder.exists()
