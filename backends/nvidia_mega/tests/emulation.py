"""Runs the kernels of this package on a CPU, as those of the standard chain."""

from pathlib import Path
from typing import Final

import torch

from backends.standard.tests.bench import Bench
from backends.standard.tests.emulation import KERNELS as STANDARD
from backends.standard.tests.emulation import workshop_on

KERNELS: Final = {
    "bitmap": ("route",),
    "draft_once": ("draft_tokens_bf16", "draft_tokens_fp8"),
    "norm_product": ("norm_product_bf16", "norm_product_fp8"),
    "rope_attention": ("rope_attention",),
}
"""Of every file of code/."""

EMULATIONS: Final = {
    "mega_primitives.cuh": Path(__file__).parent / "emulated" / "mega_primitives.cuh"
}
"""What takes the place of headers that hold assembly."""


def emulated_bench(folder: Path) -> Bench:
    """The CPU as a device; compiled kernels are kept in `folder`."""
    kernels = STANDARD | KERNELS
    return Bench(torch.device("cpu"), lambda: workshop_on(folder, kernels, EMULATIONS))
