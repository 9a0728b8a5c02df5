import errno
import os
import sys
from pathlib import Path

import pytest

from layerscope.cli.main import main
from layerscope.schema import EDGES, KERNELS, empty
from tests.ingest import paper_runs
from tests.perfetto import runs
from tests.perfetto.reading import read


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A hand-made run with overlap, a twin and edges."""
    return runs.write(tmp_path / "run")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Exit code and the one line on stderr of an export."""
    code = main(["export", *arguments])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return code, err.removeprefix("error: ").rstrip()


def test_the_median_passes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The trace is in the file, and stderr says how much and what reads it."""
    trace = folder.parent / "x.pftrace"
    assert main(["export", str(folder), "-o", str(trace)]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        f"36 kernels of 9 passes of 3 graphs in {trace}; "
        "see them at https://ui.perfetto.dev\n"
    )
    assert read(trace.read_bytes()).processes == [
        "reference",
        "fused",
        "fused (serial)",
    ]


def test_every_pass_of_some_arms(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """--all takes every replay, --arms leaves out the others."""
    trace = folder.parent / "x.pftrace"
    arguments = ["export", str(folder), "-o", str(trace), "--all"]
    assert main([*arguments, "--arms", "reference"]) == 0
    assert "16 kernels of 8 passes of 1 graph in" in capsys.readouterr().err
    assert read(trace.read_bytes()).processes == ["reference"]


def test_a_run_without_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing can be shown; exit code 2, and no file."""
    folder = runs.write(tmp_path / "run", kernels=empty(KERNELS), edges=empty(EDGES))
    trace = tmp_path / "x.pftrace"
    for more in ([], ["--all"]):
        code, line = refusal(capsys, str(folder), "-o", str(trace), *more)
        assert code == 2
        assert line == (
            f"{folder} has no kernels: nothing was recorded, so none can be shown"
        )
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_an_older_trace(folder: Path) -> None:
    """It is replaced once the new one is whole, and stays where there is none."""
    trace = folder.parent / "x.pftrace"
    trace.write_text("older", encoding="utf-8")
    assert main(["export", str(folder), "-o", str(trace), "--arms", "none"]) == 2
    assert trace.read_text(encoding="utf-8") == "older"
    assert main(["export", str(folder), "-o", str(trace)]) == 0
    assert len(read(trace.read_bytes()).processes) == 3


def test_an_output_that_cannot_be(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder is refused, with the name of a file in it."""
    code, line = refusal(capsys, str(folder), "-o", str(folder))
    assert code == 2
    assert line == f"{folder} is a folder; name a file in it: -o {folder}/run.pftrace"


@pytest.mark.parametrize("more", [[], ["--all"]])
def test_a_full_disk(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    more: list[str],
) -> None:
    """Nothing is left of a trace that did not fit; exit code 1."""

    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    trace = folder.parent / "x.pftrace"
    code, line = refusal(capsys, str(folder), "-o", str(trace), *more)
    assert code == 1
    assert line == f"disk full while writing {trace}; free some space and try again"
    assert [path.name for path in folder.parent.iterdir()] == ["run"]


def test_an_unknown_arm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The arms that were recorded are named; nothing is written."""
    trace = folder.parent / "x.pftrace"
    code, line = refusal(capsys, str(folder), "-o", str(trace), "--arms", "fsed")
    assert code == 2
    assert line == "--arms: nothing was recorded of 'fsed'; there are fused, reference"
    assert not trace.exists()


def test_arms_without_a_name(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A comma too many is refused before any work."""
    code, line = refusal(capsys, str(folder), "-o", "x.pftrace", "--arms", "fused,")
    assert code == 2
    assert line == "--arms 'fused,' has an arm without a name; write A,B"


def test_a_missing_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is not there is exit code 2, in both ways of reading."""
    for more in ([], ["--all"]):
        trace = str(tmp_path / "x.pftrace")
        code, line = refusal(capsys, str(tmp_path / "none"), "-o", trace, *more)
        assert code == 2
        assert line == f"no run at {tmp_path / 'none'}"


def test_without_the_extra(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The line says what to install."""
    monkeypatch.setitem(sys.modules, "perfetto", None)
    code, line = refusal(capsys, str(folder), "-o", "x.pftrace")
    assert code == 1
    assert line == "export needs perfetto; pip install 'layerscope[perfetto]'"


def test_layers_of_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Passes are called layers, and what is outside of them says so."""
    folder, trace = paper_runs.write(tmp_path / "run"), tmp_path / "x.pftrace"
    assert main(["export", str(folder), "-o", str(trace)]) == 0
    told = capsys.readouterr().err
    assert told.startswith("18 kernels of 6 passes of 2 graphs in")
    names = {each.name for each in read(trace.read_bytes()).slices}
    assert {"layer 0", "layer 1, the median", "layer 2"} <= names
    assert main(["export", str(folder), "-o", str(trace), "--all"]) == 0
    found = read(trace.read_bytes())
    names = {each.name for each in found.slices}
    assert {"layer 0", "layer 3", "outside of layers"} <= names
    assert not any(name.startswith("pass") for name in names)
