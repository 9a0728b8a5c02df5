import subprocess
import sys
from importlib.metadata import EntryPoint, distributions
from pathlib import Path

import pytest

from tools import link_backends

ROOT = link_backends.ROOT


def write_project(root: Path, version: str) -> Path:
    """A distribution ``demo-arm`` with one module, as the backends have them."""
    project = root / "backends" / "demo"
    source = project / "src" / "demo_arm"
    source.mkdir(parents=True, exist_ok=True)
    (source / "__init__.py").write_text(
        f'"""A demo."""\n\nBACKEND = 7\n__version__ = "{version}"\n', encoding="utf-8"
    )
    (project / "pyproject.toml").write_text(
        '[project]\nname = "demo-arm"\ndescription = "A demo."\n'
        'dynamic = ["version"]\n'
        '[project.entry-points."layerscope.backends"]\ndemo = "demo_arm:BACKEND"\n'
        '[tool.hatch.version]\npath = "src/demo_arm/__init__.py"\n',
        encoding="utf-8",
    )
    return project


def found_in(folder: Path) -> list[tuple[str, str, list[EntryPoint]]]:
    """Name, version and entry points of every distribution in `folder`."""
    return [
        (found.name, found.version, list(found.entry_points))
        for found in distributions(path=[str(folder)])
    ]


def test_a_linked_backend_is_found_like_an_installed_one(tmp_path: Path) -> None:
    """A fresh interpreter finds the entry point by PYTHONPATH alone, and loads it."""
    write_project(tmp_path, "1.2")
    source = tmp_path / "backends" / "demo" / "src"
    folder = tmp_path / "linked"
    link_backends.link(source.parent, folder)
    code = (
        "from importlib.metadata import entry_points\n"
        "entry, = entry_points(group='layerscope.backends', name='demo')\n"
        "print(entry.dist.name, entry.dist.version, entry.load())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": f"{folder}:{source}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "demo-arm 1.2 7\n"


def test_an_earlier_version_is_replaced(tmp_path: Path) -> None:
    """Linked again, only the version that is there now is found."""
    for version in ("1.2", "1.3"):
        link_backends.link(write_project(tmp_path, version), tmp_path / "linked")
    entry = EntryPoint("demo", "demo_arm:BACKEND", "layerscope.backends")
    assert found_in(tmp_path / "linked") == [("demo-arm", "1.3", [entry])]


def test_the_path_has_the_metadata_and_every_source(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is printed is the value of PYTHONPATH and nothing else."""
    project = write_project(tmp_path, "1.2")
    link_backends.main(tmp_path / "linked", tmp_path)
    assert capsys.readouterr().out == f"{tmp_path / 'linked'}:{project / 'src'}\n"


def test_a_module_without_a_version_is_named(tmp_path: Path) -> None:
    """Metadata without a version would break every look-up, so none is written."""
    project = write_project(tmp_path, "")
    with pytest.raises(ValueError, match=r"demo_arm/__init__\.py has no line like"):
        link_backends.link(project, tmp_path / "linked")


def test_the_backends_of_the_checkout_can_be_linked(tmp_path: Path) -> None:
    """Each has the settings that linking reads, under the name of its folder."""
    projects = {file.parent for file in ROOT.glob("backends/*/pyproject.toml")}
    assert projects
    for project in projects:
        assert link_backends.link(project, tmp_path) == project / "src"
    found = found_in(tmp_path)
    names = {entry.name for *_, entries in found for entry in entries}
    assert names == {project.name for project in projects}
