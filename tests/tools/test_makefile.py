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
    outer = ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")  # of `make test`
    done = subprocess.run(
        ["make", "--no-print-directory", target, "SETUP=none", "PYTHON=echo"],  # noqa: S607
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name not in outer},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.count("\n") == 1
    assert "PYTHONPATH" not in done.stdout
