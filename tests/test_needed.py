"""No test of pictures is skipped where all must run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import needed

ROOT = Path(__file__).resolve().parent.parent
OF_A_GPU = {"cuda", "cupti", "pynvml", "triton"}


def test_what_is_missing_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Modules, programs and the viewer, each where it is looked for."""
    monkeypatch.setattr(needed, "MODULES", ("json", "no_such"))
    monkeypatch.setattr(needed, "VIEWER", tmp_path / "viewer")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert needed.missing() == ["no_such", "chromium", "node", "viewer"]


def test_nothing_runs_where_what_is_required_is_missing(tmp_path: Path) -> None:
    """Without a Chromium to be found, pytest ends at once, and says why."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "tests/test_errors.py"],
        cwd=ROOT,
        env=os.environ | {needed.BROWSERS: "required", "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"{needed.BROWSERS} says that all is needed, and there is no " in done.stderr
    assert "chromium" in done.stderr


def test_what_tests_skip_without_is_known() -> None:
    """Every module that a test skips without is needed, but for those of a GPU."""
    skips = re.compile(r'importorskip\(\s*"([\w.]+)"')
    found = {
        name.partition(".")[0]
        for path in (ROOT / "tests").rglob("*.py")
        if "node_modules" not in path.parts
        for name in skips.findall(path.read_text(encoding="utf-8"))
    }
    assert found - OF_A_GPU - {"layerscope"} <= set(needed.MODULES)


def test_all_is_required_in_ci() -> None:
    """What CI runs sets the variable before the tests."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    before, _, _ = script.partition("make test")
    assert f"\nexport {needed.BROWSERS}=required\n" in before
