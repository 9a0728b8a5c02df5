"""Runs the kernels of this package on a CPU, as those of the standard chain."""

from pathlib import Path
from typing import Final

import torch

from backends.standard.tests.bench import Bench
from backends.standard.tests.emulation import KERNELS as STANDARD
from backends.standard.tests.emulation import workshop_on

KERNELS: Final = {
    "norm_product": ("norm_product_bf16", "norm_product_fp8"),
}
"""Of every file of code/."""


def emulated_bench(folder: Path) -> Bench:
    """The CPU as a device; compiled kernels are kept in `folder`."""
    return Bench(torch.device("cpu"), lambda: workshop_on(folder, STANDARD | KERNELS))
