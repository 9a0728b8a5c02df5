import errno
import os
import sys
from pathlib import Path

import pytest

from layerscope.cli.main import main
from layerscope.render import chart_scripts
from tests import handmade

pytest.importorskip("vl_convert", reason="the extra report is not installed")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hand-made run on disk; its page has stand-ins for the scripts of charts."""
    monkeypatch.setattr(chart_scripts, "_PROGRAM", "print('/* scripts */')")
    return handmade.write(tmp_path / "run")


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str]:
    """Exit code and the one line on stderr of ``layerscope report``."""
    code = main(["report", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    return code, err.removeprefix("error: ").rstrip("\n")


def test_report_writes_a_page(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file, whole, over an older one; its name and size are printed."""
    output = tmp_path / "page.html"
    output.write_text("older", encoding="utf-8")
    assert main(["report", str(folder), "-o", str(output)]) == 0
    out, err = capsys.readouterr()
    page = output.read_text(encoding="utf-8")
    assert out.startswith(f"{output}: ")
    assert out.endswith(" kB\n")
    assert err == ""
    assert page.startswith("<!doctype html>")
    assert page.endswith("</html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "run"]


def test_the_page_has_a_usual_name(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without --output it is report.html in the present folder."""
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(folder)]) == 0
    assert (tmp_path / "report.html").is_file()


def test_a_missing_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is not there is exit code 2."""
    line = f"no run at {tmp_path / 'none'}"
    page = tmp_path / "page.html"
    assert refusal(capsys, tmp_path / "none", "-o", page) == (2, line)
    assert not page.exists()


def test_a_folder_is_no_page(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names a file in it."""
    expected = f"{tmp_path} is a folder; name a file in it: -o {tmp_path}/report.html"
    assert refusal(capsys, folder, "-o", tmp_path) == (2, expected)


def test_a_full_disk(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The older page stays, nothing else is left; exit code 1."""

    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fsync)
    output = tmp_path / "page.html"
    output.write_text("older", encoding="utf-8")
    expected = f"disk full while writing {output}; free some space and try again"
    assert refusal(capsys, folder, "-o", output) == (1, expected)
    assert output.read_text(encoding="utf-8") == "older"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "run"]


def test_a_missing_extra(
    folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One line says what to install."""
    monkeypatch.setitem(sys.modules, "jinja2", None)
    expected = "report needs jinja2; pip install 'layerscope[report]'"
    assert refusal(capsys, folder, "-o", tmp_path / "page.html") == (1, expected)
