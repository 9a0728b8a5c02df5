"""``profile --stamps`` of a backend whose kernels note when blocks work."""

import json
import sys
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
import torch
from torch import Tensor

from layerscope import registry
from layerscope.cli.main import main
from layerscope.layers.reference import BACKEND, ReferenceBuilt
from layerscope.plugin import BuildContext, Step, StepShape
from layerscope.regions import Region
from layerscope.run import load

SMALL: Final = (
    *("profile", "--device", "cpu", "--model", "tiny-moe", "--context", "16"),
    *("--samples", "24", "--passes", "3", "--captures", "3", "--recorder", "none"),
    *("--no-draft", "--time-budget", "2", "--stamps"),
)


class Paper:
    """The reference; built with stamps, it says that two kernels took 1 µs each."""

    def __init__(self, context: BuildContext) -> None:
        self._plain = ReferenceBuilt(context.problem)
        self.device_bytes = 0
        if context.stamps:
            self.read_stamps = self._read

    def plan(self, shape: StepShape) -> Step | None:
        """Always, the reference's own step inside."""
        step = self._plain.plan(shape)
        assert step is not None
        self._step = step
        return self

    def run(self, region: Region, pass_index: int) -> None:
        """As the reference."""
        self._step.run(region, pass_index)

    def expert_ids(self, pass_index: int) -> Tensor | None:
        """The reference's."""
        return self._step.expert_ids(pass_index)

    def touched_bytes(self, region: Region) -> int | None:
        """The reference's."""
        return self._step.touched_bytes(region)

    def _read(self) -> Mapping[str, Tensor]:
        return {
            "norm": torch.tensor([[5_000, 5_100, 0, 6_100]]),
            "qkv": torch.tensor([[5_800, 6_500, 6_600, 7_500]]),
        }


def test_where_blocks_wait_and_work_is_a_table(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside arms without stamps, which are compared as ever."""
    backend = replace(BACKEND, name="paper", build=Paper, build_draft=None, stamps=True)
    monkeypatch.setitem(sys.modules, "paper_b", SimpleNamespace(BACKEND=backend))
    entry = EntryPoint("paper", "paper_b:BACKEND", "layerscope.backends")
    monkeypatch.setattr(registry, "entry_points", lambda **_: [entry])
    folder = tmp_path / "run"
    assert main([*SMALL, "--arms", "reference,paper", "-o", str(folder)]) == 0
    capsys.readouterr()
    run = load(folder)
    assert [arm.name for arm in run.header.study.arms] == ["reference", "paper"]
    assert {check.arm for check in run.header.numerics} == {
        *("reference", "paper", "paper (stamps)", "reference (A/A)"),
    }
    assert main(["show", str(folder), "--json"]) == 0
    tables = {
        table["title"]: table["rows"]
        for table in json.loads(capsys.readouterr().out)["tables"]
    }
    norm, qkv, everything = tables[
        "kernels of paper by their blocks, mean of 8 readings"
    ]
    assert (norm["work_ns"], qkv["handover_ns"], qkv["work_ns"]) == (1_000, 400, 1_000)
    assert qkv["early_ns"] == 300
    assert (everything["handover_ns"], everything["work_ns"]) == (400, 2_000)


def test_a_study_without_any_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is built."""
    folder = tmp_path / "run"
    assert main([*SMALL, "--arms", "reference", "-o", str(folder)]) == 2
    assert "--stamps: reference has no stamps; name an arm that has some" in (
        capsys.readouterr().err.replace("\n", " ")
    )
    assert not folder.exists()
