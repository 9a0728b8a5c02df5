import platform
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import pytest

from layerscope import registry
from layerscope.doctor import software
from layerscope.errors import BackendError
from layerscope.report.diagnosis import Finding, State


def fake_torch(version: str, *, cuda: str | None, hip: str | None) -> SimpleNamespace:
    """``torch``, as much of it as is asked."""
    return SimpleNamespace(
        __version__=version, version=SimpleNamespace(cuda=cuda, hip=hip)
    )


class Broken(MetaPathFinder):
    """Lets the import of one module fail."""

    def __init__(self, name: str, error: Exception) -> None:
        self.name, self.error = name, error

    def find_spec(self, fullname: str, *_: object) -> ModuleSpec | None:
        """Fail for the one module, and leave every other to the next finder."""
        if fullname == self.name:
            raise self.error
        return None


def test_the_interpreter_and_what_reads_runs_are_named() -> None:
    """Which Python runs is the first thing that goes wrong."""
    found = software.python()
    assert found.state is State.OK
    assert found.found.startswith(f"{platform.python_version()} ({sys.executable})")
    assert "polars " in found.found


@pytest.mark.parametrize(
    ("cuda", "hip", "build"),
    [
        (None, None, "CPUs"),
        ("13.0", None, "CUDA 13.0"),
        (None, "7.0.5", "ROCm 7.0.5"),
    ],
)
def test_a_torch_says_what_it_is_built_for(
    monkeypatch: pytest.MonkeyPatch, cuda: str | None, hip: str | None, build: str
) -> None:
    """The build decides which devices can be measured at all."""
    monkeypatch.setitem(sys.modules, "torch", fake_torch("2.11.0", cuda=cuda, hip=hip))
    assert software.torch() == Finding("torch", State.OK, f"2.11.0, built for {build}")


def test_an_old_torch_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """2.10 is newer than 2.9, and 2.8 is not."""
    new, old = (fake_torch(v, cuda=None, hip=None) for v in ("2.10.1", "2.8.0"))
    monkeypatch.setitem(sys.modules, "torch", new)
    assert software.torch().state is State.OK
    monkeypatch.setitem(sys.modules, "torch", old)
    assert software.torch() == Finding(
        "torch",
        State.LIMITED,
        "2.8.0, built for CPUs",
        "layerscope is tested with torch 2.9 and newer",
        "pip install 'torch>=2.9'",
    )


def test_without_torch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain install blocks measuring, and one line mends it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    assert software.torch() == Finding(
        "torch",
        State.MISSING,
        "not installed",
        "recorded runs can be shown; nothing can be measured",
        "pip install 'layerscope[profile]'",
        blocks=True,
    )


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError("libcudart.so.13: cannot open\nmore"), "libcudart.so.13: cannot open"),
        (ImportError("undefined symbol"), "undefined symbol"),
        (ModuleNotFoundError("No module named 'x'", name="x"), "No module named 'x'"),
    ],
)
def test_a_torch_that_does_not_load_is_told_with_its_cause(
    monkeypatch: pytest.MonkeyPatch, error: Exception, cause: str
) -> None:
    """A library that is not found is another thing than a package that is not."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Broken("torch", error), *sys.meta_path])
    monkeypatch.setattr(software, "installed", {"torch": "2.11.0"}.get)
    found = software.torch()
    assert (found.state, found.blocks) == (State.MISSING, True)
    assert found.found == f"2.11.0 cannot be imported: {cause}"


def test_profile_needs_safetensors(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is part of the same extra."""
    assert software.safetensors().state is State.OK
    monkeypatch.setitem(sys.modules, "safetensors", None)
    found = software.safetensors()
    assert (found.state, found.blocks) == (State.MISSING, True)
    assert found.fix == "pip install 'layerscope[profile]'"


def test_backends_are_counted_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of them is imported."""
    names = {"fused": None, "reference": None}
    monkeypatch.setattr(registry, "discover", lambda: names)
    assert software.backends() == Finding("backends", State.OK, "2: fused, reference")


def test_two_backends_of_one_name_block(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry refuses them, and so does every study."""

    def refuse() -> None:
        msg = "two backends are called fused: a and b; uninstall one of them"
        raise BackendError(msg)

    monkeypatch.setattr(registry, "discover", refuse)
    found = software.backends()
    assert (found.state, found.blocks) == (State.REFUSED, True)
    assert found.found.startswith("two backends are called fused")
