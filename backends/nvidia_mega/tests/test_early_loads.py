"""What is to be loaded before the wait is still before it in the machine code."""

import pytest

pytest.importorskip("cuda.bindings.nvrtc", reason="the cuda extra is not installed")

from backends.standard.tests.machine_code import early_loads
from backends.standard.tests.test_compiling import Defines, attention
from layerscope_nvidia_mega.norm_product import PACKAGE
from layerscope_standard.compiling import cubin
from layerscope_standard.kernels import Kernel

EARLY: Defines = (("TRIGGER", 1), ("LOADS_EARLY", 1))
SIZE: Defines = (("SIZE", 2048), ("ROWS", 6))


@pytest.mark.parametrize(
    ("file", "name", "defines", "least"),
    [
        ("norm_product", "norm_product_bf16", SIZE, 18),
        ("norm_product", "norm_product_fp8", SIZE, 18),
        (
            "rope_attention",
            "rope_attention",
            (*attention(128, 6, 8, 1), ("SPLITS", 1)),
            21,
        ),
    ],
)
def test_constants_are_loaded_early(
    file: str, name: str, defines: Defines, least: int
) -> None:
    """Units of weights and vectors of the norm; pages, tiles, table of rotations."""
    early = cubin(Kernel(file, name, 32, (*defines, *EARLY), PACKAGE), "sm_90")
    assert early_loads(early, name) >= least
    stock = cubin(Kernel(file, name, 32, defines, PACKAGE), "sm_90")
    assert early_loads(stock, name) == 0
