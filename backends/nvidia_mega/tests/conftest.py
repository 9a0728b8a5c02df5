"""The bench of the tests: an emulated device, as for the standard chain."""

from pathlib import Path

import pytest

from backends.nvidia_mega.tests.emulation import emulated_bench
from backends.standard.tests.bench import Bench
from backends.standard.tests.conftest import (  # noqa: F401 (fixtures of this package too)
    _caches_of_the_session,
    libraries,
)


@pytest.fixture
def bench(libraries: Path) -> Bench:  # noqa: F811 (the fixture that is imported)
    """The CPU, emulating."""
    return emulated_bench(libraries)
