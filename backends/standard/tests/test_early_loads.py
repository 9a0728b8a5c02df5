"""What is to be loaded before the wait is still before it in the machine code.

The assembler is free to move loads behind a wait, and does so with `ld.global.nc`.
"""

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="the cuda extra is not installed")

from backends.standard.tests.machine_code import early_loads
from backends.standard.tests.test_compiling import Defines, attention
from layerscope_standard.compiling import cubin
from layerscope_standard.kernels import Kernel

EARLY: Defines = (("TRIGGER", 1), ("LOADS_EARLY", 1))
PRODUCT: Defines = (("TILES", 1), ("DEPTH", 4))


@pytest.mark.parametrize(
    ("file", "name", "defines", "least"),
    [
        ("product", "product_bf16", PRODUCT, 8),
        ("product", "product_fp8", PRODUCT, 16),
        ("norm", "add_norm_rows", (), 4),
        ("rope", "rope_kv_write", (("HEAD_DIM", 128),), 12),
        ("attention", "attention", attention(128, 6, 8, 1), 9),
    ],
)
def test_constants_are_loaded_early(
    file: str, name: str, defines: Defines, least: int
) -> None:
    """Units of two rows, with scales; vectors of norm and table; pages and tiles."""
    early = cubin(Kernel(file, name, 32, (*defines, *EARLY)), "sm_90")
    assert early_loads(early, name) >= least
    stock = cubin(Kernel(file, name, 32, defines), "sm_90")
    assert early_loads(stock, name) == 0


def test_a_kernel_that_is_not_there() -> None:
    """Is told by name."""
    image = cubin(Kernel("norm", "norm_rows", 32), "sm_90")
    with pytest.raises(ValueError, match="there is no kernel norm_columns"):
        early_loads(image, "norm_columns")
