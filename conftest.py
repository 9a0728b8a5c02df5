"""What holds for the tests of layerscope and of its backends."""

from itertools import pairwise
from pathlib import Path

import hypothesis
import pytest

ROOT = Path(__file__).parent

# A slow machine is no failure. In CI hypothesis draws the same examples every time.
hypothesis.settings.register_profile("layerscope", deadline=None)
hypothesis.settings.load_profile("layerscope")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests below every tests/gpu, and skip them where there is no GPU."""
    found = [item for item in items if needs_gpu(item.path)]
    reason = missing_gpu() if found else None
    for item in found:
        item.add_marker(pytest.mark.gpu)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


def needs_gpu(path: Path) -> bool:
    """Whether a test file is below tests/gpu, or below backends/NAME/tests/gpu."""
    return ("tests", "gpu") in pairwise(path.relative_to(ROOT).parts)


def missing_gpu() -> str | None:
    """Why tests for a GPU cannot run here, or None if they can."""
    try:
        import torch  # noqa: PLC0415 (seconds, and only these tests need it)
    except ImportError:
        return "torch is not installed"
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is not built for CUDA"
    return None if torch.cuda.is_available() else "torch finds no CUDA GPU"
