import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("target", ["profile", "readme", "benchmark"])
def test_targets_with_results_print_nothing_else(target: str) -> None:
    """Stdout is what the program prints, so that `make profile` can be piped on."""
    printed = make(target, "echo")
    assert printed.count("\n") == 1
    assert "PYTHONPATH" not in printed


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_backends_are_found_where_nothing_is_installed(tmp_path: Path) -> None:
    """The path has the checkout, what links the backends, and what was there."""
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        'case "$1" in\n'
        '  tools/link_backends.py) echo "links:sources" ;;\n'
        '  *) echo "$PYTHONPATH" ;;\n'
        "esac\n",
        encoding="utf-8",
    )
    python.chmod(0o755)
    printed = make("profile", str(python), PYTHONPATH="theirs")
    assert printed == f"{ROOT}:links:sources:theirs\n"


def make(target: str, python: str, **variables: str) -> str:
    """What a target prints with `python` as its Python and nothing installed."""
    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # of `make test`
    return subprocess.run(
        ["make", "--no-print-directory", target, "SETUP=none", f"PYTHON={python}"],  # noqa: S607
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in outer}
        | variables,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
