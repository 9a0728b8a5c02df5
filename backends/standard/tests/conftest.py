"""What holds for every test of the backend: caches, and whether it can be emulated."""

import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from backends.standard.tests.bench import Bench
from backends.standard.tests.emulation import emulated_bench


@pytest.fixture(scope="session", autouse=True)
def _caches_of_the_session(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Share what is compiled among the tests of a session, and with nobody else."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(_of_session(tmp_path_factory, "cache")))
        yield


def _of_session(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder for all processes of the session, of which xdist makes several."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where emulated kernels are kept; skips what needs them where none can be."""
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler called g++")
    if platform.machine() != "x86_64":
        pytest.skip("the emulation switches stacks on x86-64 only")
    return _of_session(tmp_path_factory, "emulated")


@pytest.fixture
def bench(libraries: Path) -> Bench:
    """The CPU, emulating."""
    return emulated_bench(libraries)
