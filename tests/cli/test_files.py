"""What becomes of the output of a command, whatever happens."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from layerscope.cli.files import check_output, output_file
from layerscope.errors import EXIT_INTERRUPTED, InputError, RecordError
from tests.perfetto import runs

# A command to which SIGTERM comes when all is written, but not yet in place.
INTERRUPTED = """
import os, signal, sys
from layerscope.cli.main import main
from layerscope.render import chart_scripts

signal.signal(signal.SIGTERM, signal.SIG_DFL)
chart_scripts._PROGRAM = "print('/* scripts */')"
os.fsync = lambda _: signal.raise_signal(signal.SIGTERM)
sys.exit(main(sys.argv[1:]))
"""


def names(folder: Path) -> list[str]:
    """All that is in a folder."""
    return sorted(path.name for path in folder.iterdir())


def test_a_file_in_a_folder_is_fine(tmp_path: Path) -> None:
    """A new one, and one that will replace another."""
    check_output(tmp_path / "new", "x")
    (tmp_path / "old").touch()
    check_output(tmp_path / "old", "x")


def test_what_no_file_can_be_written_to(tmp_path: Path) -> None:
    """Each is refused with the reason and what to do."""
    refused = {
        tmp_path: f"{tmp_path} is a folder; name a file in it: -o {tmp_path}/x",
        Path("/dev/null"): "/dev/null is not a regular file; choose another --output",
        tmp_path / "none" / "x": (
            f"there is no folder {tmp_path}/none; choose another --output"
        ),
    }
    for output, expected in refused.items():
        with pytest.raises(InputError) as error:
            check_output(output, "x")
        assert str(error.value) == expected


@pytest.mark.parametrize(
    ("number", "kind", "expected"),
    [
        (errno.ENOSPC, RecordError, "disk full while writing {}; free some space "),
        (errno.EIO, InputError, "cannot write {}: of the disk; choose another --out"),
    ],
)
def test_a_failed_write(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    kind: type[Exception],
    expected: str,
) -> None:
    """What was there stays, nothing else is left, and the reason is told."""

    def fsync(_: int) -> None:
        raise OSError(number, "of the disk")

    monkeypatch.setattr(os, "fsync", fsync)
    output = tmp_path / "x"
    output.write_text("older", encoding="utf-8")
    with pytest.raises(kind) as error, output_file(output) as file:
        file.write(b"new")
    assert str(error.value).startswith(expected.format(output))
    assert output.read_text(encoding="utf-8") == "older"
    assert names(tmp_path) == ["x"]


@pytest.mark.parametrize("arguments", [["export"], ["export", "--all"], ["report"]])
def test_an_interrupted_command(tmp_path: Path, arguments: list[str]) -> None:
    """SIGTERM ends it as Ctrl-C does, and leaves no part of a file."""
    if arguments == ["report"]:
        pytest.importorskip("vl_convert", reason="the extra report is not installed")
    folder = runs.write(tmp_path / "run")
    command = [*arguments, str(folder), "--output", str(tmp_path / "x")]
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == EXIT_INTERRUPTED, done.stderr
    assert "Traceback" not in done.stderr
    assert names(tmp_path) == ["run"]
