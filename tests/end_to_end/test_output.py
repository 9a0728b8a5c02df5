"""Where standard output leads: real pipes, full disks and plain terminals."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import handmade

ROOT = Path(__file__).resolve().parent.parent.parent
ASCII = {"PYTHONIOENCODING": "ascii"}
POSIX = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
BOTH = pytest.mark.parametrize("options", [[], ["--json"]], ids=["tables", "json"])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The hand-made run on disk."""
    return handmade.write(tmp_path / "run")


def show(
    folder: Path,
    *options: str,
    stdout: int = subprocess.PIPE,
    variables: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """The program that shows the run in `folder`, once it has ended."""
    inherited = {k: v for k, v in os.environ.items() if k != "PYTHONIOENCODING"}
    return subprocess.run(
        [sys.executable, "-m", "layerscope", "show", str(folder), *options],
        cwd=ROOT,
        env=inherited | dict(variables or {}),
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
    )


@pytest.mark.parametrize("variables", [ASCII, POSIX], ids=["ascii", "posix"])
def test_a_terminal_without_unicode_gets_plain_signs(
    folder: Path, variables: dict[str, str]
) -> None:
    """Every figure is there, its minus too, and JSON is UTF-8 as ever."""
    done = show(folder, variables=variables)
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode("ascii")
    assert "regions of reference, a profiled pass, in us\n" in text
    assert "-10.00" in text
    done = show(folder, "--json", variables=variables)
    assert (done.returncode, done.stderr) == (0, b"")
    assert json.loads(done.stdout.decode("utf-8"))["path"] == str(folder)


@BOTH
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_full_disk_is_one_line(folder: Path, options: list[str]) -> None:
    """Exit code 1 and the cause, before Python ends and after."""
    full = os.open("/dev/full", os.O_WRONLY)
    done = show(folder, *options, stdout=full)
    os.close(full)
    assert done.returncode == 1
    assert done.stderr == (b"error: cannot write the report: No space left on device\n")


@BOTH
def test_a_reader_that_has_left_is_no_error(folder: Path, options: list[str]) -> None:
    """Exit code 0 and not a word, as where it read to the end."""
    reader, writer = os.pipe()
    os.close(reader)
    done = show(folder, *options, stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")
