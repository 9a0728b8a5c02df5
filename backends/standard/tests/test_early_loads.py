"""What is to be loaded before the wait is still before it in the machine code.

The assembler is free to move loads behind a wait, and does so with `ld.global.nc`.
"""

from typing import Final

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


WEIGHTS: Final = 2
"""Loads of a unit of k of an expert: of outputs g and g + 8."""

SCALE_OF_BOTH: Final = 1
"""In one stream, where 16 outputs are known to lie within a block of scales."""

SCALES: Final = 2
"""One expert at a time, of outputs g and g + 8."""

FROM_ROUTING: Final = 3
"""How many experts have rows, a share, and an element of the residual."""


@pytest.mark.parametrize(
    ("name", "runs_on", "unit"),
    [
        ("down_bf16", 0, WEIGHTS),
        ("down_bf16", 1, WEIGHTS),
        ("down_fp8", 0, WEIGHTS + SCALES),
        ("down_fp8", 1, WEIGHTS + SCALE_OF_BOTH),
    ],
)
@pytest.mark.parametrize("depth", [2, 3, 4, 6])
def test_only_weights_of_experts_are_loaded_early(
    name: str, runs_on: int, unit: int, depth: int
) -> None:
    """Of each unit in flight its weights and scales, and no row: gate_up writes those.

    The table is copied, by as many instructions as its loop is unrolled to.
    """
    loop = (("TILES", 1), ("RUNS_ON", runs_on), ("DOWN_DEPTH", depth))
    early = cubin(Kernel("experts", name, 32, (*loop, *EARLY)), "sm_90")
    assert early_loads(early, name, with_copies=False) == FROM_ROUTING + depth * unit
    assert early_loads(early, name) > FROM_ROUTING + depth * unit
    stock = cubin(Kernel("experts", name, 32, loop), "sm_90")
    assert early_loads(stock, name) == 0


def test_a_kernel_that_is_not_there() -> None:
    """Is told by name."""
    image = cubin(Kernel("norm", "norm_rows", 32), "sm_90")
    with pytest.raises(ValueError, match="there is no kernel norm_columns"):
        early_loads(image, "norm_columns")
