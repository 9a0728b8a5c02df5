"""What holds for every test: hardware, caches, and how long an example may take."""

from pathlib import Path

import hypothesis
import pytest

GPU_TESTS = Path(__file__).parent / "gpu"

# A slow machine is no failure. In CI hypothesis draws the same examples every time.
hypothesis.settings.register_profile("layerscope", deadline=None)
hypothesis.settings.load_profile("layerscope")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests below tests/gpu, and skip them where there is no GPU."""
    found = [item for item in items if item.path.is_relative_to(GPU_TESTS)]
    reason = missing_gpu() if found else None
    for item in found:
        item.add_marker(pytest.mark.gpu)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def missing_gpu() -> str | None:
    """Why tests for a GPU cannot run here, or None if they can."""
    try:
        import torch  # noqa: PLC0415 (seconds, and only these tests need it)
    except ImportError:
        return "torch is not installed"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is not built for CUDA"
    return None if torch.cuda.is_available() else "torch finds no CUDA GPU"


@pytest.fixture(autouse=True)
def _own_caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give every test empty caches, so that none passes on what another left."""
    for variable in ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(variable, str(tmp_path / "caches" / variable.lower()))
