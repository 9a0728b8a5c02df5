"""What must hold for each kernel of this package on any bench."""

import torch

from backends.standard.tests.bench import Bench, poison
from layerscope.layers.spec import DType
from layerscope_nvidia_mega.norm_product import norm_product
from layerscope_standard.kernels import Kernel
from layerscope_standard.products import Product
from layerscope_standard.selection import Choice

EPS = 1e-6


def check_norm_product(bench: Bench, dtype: DType, sizes: tuple[int, int, int]) -> None:
    """Bit for bit a norm and a product after it; `sizes` are rows, outputs, size."""
    rows, outputs, size = sizes
    workshop = bench.workshop()
    weight = bench.weight(dtype, outputs, size)
    scales = bench.normal(size, seed=3)
    given = bench.normal(rows, size)
    normed = workshop.empty(rows, size, dtype=torch.bfloat16)
    found, want = (workshop.empty(1, rows, outputs) for _ in range(2))
    norm = workshop.operation(
        "norm",
        Kernel("norm", "norm_rows", 512),
        (rows, 1, 1),
        (given, scales, normed, size, EPS),
    )
    product = Product(workshop, "qkv", Choice(), want).operation(weight, normed)
    fused = norm_product(workshop, weight, scales, given, found, EPS)
    for seed in (4, 5):
        given.copy_(bench.normal(rows, size, seed=seed, scale=3.0))
        poison(workshop)
        for operation in (norm, product, fused):
            operation.enqueue()
        bench.wait()
        assert bool(want.isfinite().all())
        assert torch.equal(found, want)
