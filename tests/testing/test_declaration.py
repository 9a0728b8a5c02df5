"""The entry point that a backend comes through, in a fresh interpreter."""

from dataclasses import replace
from pathlib import Path

import pytest

from layerscope import registry
from layerscope.plugin import BackendSpec
from layerscope.testing import declaration
from tests import plugins

HONEST = """
    from dataclasses import replace
    from layerscope.layers.reference import BACKEND as REFERENCE
    from layerscope.plugin import Requires

    BACKEND = replace(REFERENCE, name="{name}", requires=Requires(packages=("wave",)))
"""
EAGER = f"    import wave{HONEST}"
LOCAL = f"""
    import os
    assert "LAYERSCOPE_TEST_STATE" in os.environ
    del os.environ["LAYERSCOPE_TEST_STATE"]{HONEST}
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path of this interpreter and of fresh ones."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def installed(site: Path, name: str, source: str) -> BackendSpec:
    """The backend `name` with the module `source`, imported here."""
    plugins.install(site, name, source.format(name=name))
    return registry.load(name)


def test_an_honest_door_is_passed(install: Path) -> None:
    """By its name, or as the object that it leads to."""
    backend = installed(install, "door-honest", HONEST)
    assert list(declaration.entry_point(backend, is_named=True)) == []
    assert list(declaration.entry_point(backend, is_named=False)) == []


def test_a_backend_that_is_not_installed_has_no_door() -> None:
    """A spec that is still only an object in a test can be checked too."""
    backend = replace(registry.load("reference"), name="door-none")
    assert list(declaration.entry_point(backend, is_named=False)) == []


def test_a_door_to_another_backend_is_told(install: Path) -> None:
    """What is checked must be what would be measured."""
    installed(install, "door-double", HONEST)
    double = replace(registry.load("door-double"))
    assert list(declaration.entry_point(double, is_named=False)) == [
        "the entry point door-double = door_double:BACKEND is another backend"
    ]


def test_an_import_of_what_is_required_is_told(install: Path) -> None:
    """Where it is missing, the backend would be broken instead of refused."""
    backend = installed(install, "door-eager", EAGER)
    (failure,) = declaration.entry_point(backend, is_named=True)
    assert failure == (
        "importing it imports wave, which it requires: where that is missing it is "
        "broken, and cannot say so; import it in build"
    )


def test_a_module_that_only_imports_here_is_told(
    install: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """State of one process is not there in the next."""
    monkeypatch.setenv("LAYERSCOPE_TEST_STATE", "set")
    backend = installed(install, "door-local", LOCAL)
    (failure,) = declaration.entry_point(backend, is_named=True)
    assert failure.startswith(
        "a fresh interpreter cannot import it: layerscope.errors."
    )
    assert "cannot be imported: AssertionError" in failure
