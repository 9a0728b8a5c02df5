"""Every kernel, emulated on the CPU: index arithmetic, barriers and values."""

import pytest

from backends.nvidia_mega.tests import checks
from backends.standard.tests.bench import Bench
from layerscope.layers.spec import DType


@pytest.mark.parametrize("dtype", [DType.BFLOAT16, DType.FLOAT8_E4M3])
@pytest.mark.parametrize(
    "sizes", [(1, 16, 16), (6, 40, 208), (8, 24, 2064)], ids=["least", "odd", "long"]
)
def test_norm_product(bench: Bench, dtype: DType, sizes: tuple[int, int, int]) -> None:
    """Rows that are shorter and longer than what the threads take at once."""
    checks.check_norm_product(bench, dtype, sizes)
