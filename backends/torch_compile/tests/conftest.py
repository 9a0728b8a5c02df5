"""What holds for every test of the backend: caches, and whether it can compile."""

import os
import shutil
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def _caches_of_the_session(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[None]:
    """Share what is compiled among the tests of a session, and with nobody else."""
    folder = tmp_path_factory.mktemp("compiled")
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            patch.setenv(variable, str(folder / variable.lower()))
        yield


@pytest.fixture(scope="session")
def _compiler() -> None:
    """Skip what needs a C++ compiler where there is none."""
    name = os.environ.get("CXX", "g++")
    if shutil.which(name) is None:
        pytest.skip(f"there is no C++ compiler called {name}")
