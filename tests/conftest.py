"""What holds for every test of layerscope: caches of its own, no backends of others."""

from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from tests import plugins
from tests.browser import chromium  # noqa: F401 (a fixture)
from tests.needed import BROWSERS, is_required, missing


def pytest_collection_modifyitems() -> None:
    """Stop where tests of pictures would skip, and must not, as in CI."""
    lacking = ", ".join(missing()) if is_required() else ""
    if lacking:
        msg = f"{BROWSERS} says that all is needed, and there is no {lacking}"
        raise pytest.UsageError(msg)


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test empty caches, so that none passes on what another left."""
    for variable in ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / "caches" / variable.lower()))
    monkeypatch.delenv("LAYERSCOPE_CACHE", raising=False)


@pytest.fixture(scope="module", autouse=True)
def _no_installed_backends() -> Iterator[None]:
    """Hide backends that are installed here, so that no test depends on which.

    A test still finds what it installs itself. A module at a time, since the tests of
    those backends may run in the same session.
    """
    installed = {each.name for each in metadata.distributions() if plugins.offers(each)}
    distributions = metadata.distributions

    def visible(
        **where: Any,  # noqa: ANN401 (whatever it takes)
    ) -> Iterable[metadata.Distribution]:
        return (each for each in distributions(**where) if each.name not in installed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metadata, "distributions", visible)
        yield
