import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import layerscope.doctor
import layerscope.render.diagnosis
from layerscope.cli.main import main
from layerscope.environment import DeviceFacts
from layerscope.report.diagnosis import Diagnosis, Finding, Section, State

ROOT = Path(__file__).resolve().parents[2]
CPU = DeviceFacts(type="cpu", name="Paper CPU")
READY = Diagnosis(CPU, (Section("device", (Finding("CPU", State.OK, "Paper CPU"),)),))
BLOCKED = Diagnosis(
    CPU,
    (
        Section(
            "device",
            (Finding("MIG", State.REFUSED, "on", "no", "switch it off", blocks=True),),
        ),
    ),
)


def finds(monkeypatch: pytest.MonkeyPatch, diagnosis: Diagnosis) -> list[str]:
    """Let every examination find `diagnosis`; the devices that were asked for."""
    asked: list[str] = []

    def examine(device: str) -> Diagnosis:
        asked.append(device)
        return diagnosis

    monkeypatch.setattr(layerscope.doctor, "examine", examine)
    return asked


def test_a_machine_that_can_measure_is_exit_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The diagnosis is all of stdout; the device is `auto` unless it is named."""
    asked = finds(monkeypatch, READY)
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "device",
        "ok       CPU  Paper CPU",
        "",
        "ready: layerscope profile measures Paper CPU",
    ]
    assert err == ""
    assert main(["doctor", "--device", "cpu"]) == 0
    assert asked == ["auto", "cpu"]


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_a_machine_that_cannot_is_exit_1(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    flags: list[str],
) -> None:
    """The diagnosis is printed all the same, and nothing else."""
    finds(monkeypatch, BLOCKED)
    assert main(["doctor", *flags]) == 1
    out, err = capsys.readouterr()
    assert "switch it off" in out
    assert err == ""


def test_json_is_all_of_stdout(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One object for programs."""
    finds(monkeypatch, READY)
    assert main(["doctor", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["ready"] is True
    assert document["sections"][0]["findings"][0]["topic"] == "CPU"


def test_an_unknown_device_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2, before anything is asked."""
    assert main(["doctor", "--device", "abacus"]) == 2
    assert capsys.readouterr() == (
        "",
        "error: unknown device 'abacus'; use one of auto, cpu, cuda\n",
    )


@pytest.mark.parametrize(
    ("number", "code", "line"),
    [
        (errno.EPIPE, 0, ""),
        (
            errno.ENOSPC,
            1,
            "error: cannot write the diagnosis: No space left on device\n",
        ),
    ],
)
def test_a_stdout_that_fails(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: int,
    code: int,
    line: str,
) -> None:
    """A pipe that was closed has seen enough; a full disk is an error of one line."""

    def fail(_: Diagnosis) -> None:
        raise OSError(number, os.strerror(number))

    finds(monkeypatch, READY)
    monkeypatch.setattr(layerscope.render.diagnosis, "print_diagnosis", fail)
    monkeypatch.setattr("layerscope.cli.doctor.abandon_stdout", lambda: None)
    assert main(["doctor"]) == code
    assert capsys.readouterr().err == line


def test_the_program_runs_on_this_machine() -> None:
    """A fresh process on its CPU: exit code 0, and torch.profiler has recorded."""
    done = subprocess.run(
        [sys.executable, "-m", "layerscope", "doctor", "--device", "cpu"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "ok       torch.profiler  recorded an operator\n" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("ready: layerscope profile measures")


def test_without_torch_the_program_says_how_to_get_it(tmp_path: Path) -> None:
    """A plain install: exit code 1 and no traceback."""
    (tmp_path / "torch.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [sys.executable, "-m", "layerscope", "doctor"],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert "fix: pip install 'layerscope[profile]'\n" in done.stdout
    assert done.stdout.endswith("until this is mended: torch\n")
