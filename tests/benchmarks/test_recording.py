import os
import subprocess
import sys
from math import inf
from pathlib import Path
from typing import Final, Self

import pytest
import torch

from benchmarks import record_fixtures
from benchmarks.record_backends import cases, studies
from benchmarks.record_fixtures import Case, arguments, record_all

CASE = Case("paper", 1, 6, "bfloat16")


def test_arguments_may_be_left_out() -> None:
    """All names, and for as long as it takes."""
    assert arguments(["runs"], "") == (Path("runs"), "*", inf)
    assert arguments(["runs", "*tp4*"], "") == (Path("runs"), "*tp4*", inf)
    assert arguments(["runs", "*", "90"], "") == (Path("runs"), "*", 90.0)


@pytest.mark.parametrize("given", [[], ["runs", "*", "soon"], ["a", "b", "1", "2"]])
def test_other_arguments_are_told_what_to_type(
    given: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is begun."""
    with pytest.raises(SystemExit) as raised:
        arguments(given, "")
    assert raised.value.code == 2
    assert "[-h] FOLDER [PATTERN] [SECONDS]" in capsys.readouterr().err


OF_MEGA: Final = ("draft", "replay_speeds")


@pytest.mark.parametrize(
    "script",
    [
        *("benchmarks/backends_table.py", "benchmarks/fixtures_table.py"),
        *("benchmarks/limits_table.py", "benchmarks/made_traces.py"),
        *("benchmarks/record_backends.py", "benchmarks/record_fixtures.py"),
        "benchmarks/serial_twins.py",
        *(f"backends/nvidia_mega/benchmarks/{name}.py" for name in OF_MEGA),
        "backends/standard/benchmarks/selection.py",
    ],
)
def test_help_says_what_a_script_does(script: str, tmp_path: Path) -> None:
    """And writes nothing, with or without a GPU."""
    root, here = Path(__file__).parent.parent.parent, tmp_path / "here"
    here.mkdir()
    module = script.removesuffix(".py").replace("/", ".")
    source = os.pathsep.join([str(root), *sys.path])
    done = subprocess.run(
        [sys.executable, "-m", module, "--help"],
        check=False,
        capture_output=True,
        text=True,
        cwd=here,
        env=os.environ | {"PYTHONPATH": source},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")
    assert not any(here.iterdir())


def test_every_shape_of_the_backends_has_a_study() -> None:
    """Ranks by rows by weights, many rows, and one case with switches and stamps."""
    names = [name for name, _ in studies()]
    shapes = {(case.ranks, case.rows, case.weights) for case in cases()}
    assert len(names) == len(set(names)) == len(shapes) + 2 == 22
    flags = dict(studies())
    assert "--each-switch" in flags["qwen3-30b-a3b-tp8-rows6-bfloat16-each-switch"]
    assert "--stamps" in flags["qwen3-30b-a3b-tp8-rows6-bfloat16-stamps"]
    with_drafts = {name for name, given in flags.items() if "--no-draft" not in given}
    assert with_drafts == {
        name for name in names if name.endswith(("rows6-bfloat16", "rows6-float8_e4m3"))
    }


class Now:
    """A pool that works at once."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, _: object, given: list[Case]) -> list[str]:
        """Say what would be compiled."""
        return [f"compile {case.name}" for case in given]


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Names of what is recorded, on two GPUs that are not there."""
    found: list[str] = []

    def record(path: Path, *_: object) -> str:
        found.append(path.name)
        return f"{path.name}: recorded"

    monkeypatch.setattr(record_fixtures, "ProcessPoolExecutor", Now)
    monkeypatch.setattr(record_fixtures, "record", record)
    monkeypatch.setattr(record_fixtures, "cache_dir", lambda: str(tmp_path))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in record_fixtures.UNTUNED:
        monkeypatch.setenv(name, "")
    return found


def test_a_study_with_more_to_its_name_is_compiled_ahead(
    begun: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As that of the case whose name it begins with."""
    names = (CASE.name, f"{CASE.name}-stamps", "other")
    several: list[tuple[str, list[str]]] = [(name, []) for name in names]
    record_all(tmp_path, "*-stamps", several, [CASE])
    assert begun == [f"{CASE.name}-stamps"]
    assert f"compile {CASE.name}" in capsys.readouterr().out


def test_without_a_gpu_nothing_is_begun(
    begun: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line says what it takes."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(SystemExit, match="no NVIDIA GPU is visible; run it where"):
        record_all(tmp_path, "*", [("a", [])], [])
    assert begun == []


def test_none_is_begun_after_its_time(
    begun: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is named, so that nobody takes it for recorded."""
    record_all(tmp_path, "*", [("a", []), ("b", [])], [], seconds=-1.0)
    assert begun == []
    told = capsys.readouterr().out.splitlines()
    assert told == ["a: left for another time", "b: left for another time"]
