"""The backend of docs/writing-a-backend.md, installed and used as the page says."""

import re
import tomllib
from pathlib import Path

import pytest

from layerscope.run import load
from tests import plugins
from tests.plugins import Environment

PAGE = plugins.ROOT / "docs" / "writing-a-backend.md"
LONGEST = 60  # lines of the backend


def files() -> dict[str, str]:
    """The files that the page shows, by the name in their first line."""
    block = re.compile(r"```\w+\n# ([\w.]+)\n(.*?)```", re.DOTALL)
    return dict(block.findall(PAGE.read_text(encoding="utf-8")))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment in which the distribution of the page is installed."""
    made = plugins.environment(tmp_path_factory.mktemp("page"))
    shown = files()
    project = tomllib.loads(shown["pyproject.toml"])["project"]
    ((backend, target),) = project["entry-points"]["layerscope.backends"].items()
    assert target == "fused_o_proj:BACKEND"
    plugins.install(
        made.site,
        project["name"],
        shown["fused_o_proj.py"],
        version=project["version"],
        backend=backend,
    )
    test = made.folder / "test_fused_o_proj.py"
    test.write_text(shown["test_fused_o_proj.py"], encoding="utf-8")
    return made


def test_the_backend_is_short() -> None:
    """A page that walks through a backend shows all of it."""
    assert len(files()["fused_o_proj.py"].splitlines()) <= LONGEST


def test_its_own_test_passes(environment: Environment) -> None:
    """The conformance suite finds it by its name and finds nothing wrong."""
    done = environment.python("-m", "pytest", "-q", "-p", "no:cacheprovider")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_it_is_listed(environment: Environment) -> None:
    """With its distribution, and its switch."""
    done = environment.layerscope("backends", "--model", "tiny-moe")
    assert (done.returncode, done.stderr) == (0, "")
    assert "fused-o-proj 1.0" in re.sub(r"\s+", " ", done.stdout)
    assert "why not here" not in done.stdout


def test_it_is_measured(environment: Environment, tmp_path: Path) -> None:
    """Beside the reference, which runs the regions that it does not cover."""
    done = environment.layerscope(
        *("profile", "--device", "cpu", "--model", "tiny-moe", "--context", "32"),
        *("--samples", "24", "--passes", "4", "--captures", "1", "--time-budget", "2"),
        *("--no-draft", "--arms", "reference,fused-o-proj,fused-o-proj:copy=yes"),
        *("-o", str(tmp_path / "run")),
    )
    assert done.returncode == 0, done.stderr
    header = load(tmp_path / "run").header
    assert {
        (d.arm, d.region) for d in header.decisions if d.backend != "reference"
    } == {
        ("fused-o-proj", "o_proj_all_reduce"),
        ("fused-o-proj:copy=yes", "o_proj_all_reduce"),
    }
    sizes = {build.arm: build.device_bytes for build in header.builds}
    assert sizes["fused-o-proj:copy=yes"] > sizes["fused-o-proj"]
