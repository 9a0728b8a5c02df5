"""What holds for every test of the backend: caches, and whether it can be emulated."""

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
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where emulated kernels are kept; skips what needs them where none can be."""
    if shutil.which("g++") is None:
        pytest.skip("there is no C++ compiler called g++")
    if platform.machine() != "x86_64":
        pytest.skip("the emulation switches stacks on x86-64 only")
    return tmp_path_factory.mktemp("emulated")


@pytest.fixture
def bench(libraries: Path) -> Bench:
    """The CPU, emulating."""
    return emulated_bench(libraries)
