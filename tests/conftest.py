"""What holds for every test of layerscope: caches of its own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test empty caches, so that none passes on what another left."""
    for variable in ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / "caches" / variable.lower()))
