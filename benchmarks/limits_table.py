"""Measures the limits of qwen3-30b-a3b by weights and ranks, beside the first ones.

Usage: ``python benchmarks/limits_table.py``, on one H200. Prints the time of a pass of
every skeleton and the curve of cold reads, each with its deviation from what was first
measured on an H200 (driver 580.159, CUDA 13.0): six rows, 8,192 tokens of context, 41
distinct experts, slices as one rank of so many has them.
"""

import sys
import time
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import Final

import torch

from layerscope.errors import LayerscopeError
from layerscope.graphs.device import resolve
from layerscope.graphs.skeleton import Variant, standard_chain
from layerscope.layers.presets import preset
from layerscope.layers.spec import DType, LayerSpec
from layerscope.layers.tensors import activation_bytes
from layerscope.run_header import Bound
from layerscope.runner.limit_times import Effort
from layerscope.runner.limits import STANDARD, measure_bounds, measure_reads

EXPERTS: Final = 41
EFFORT: Final = Effort(captures=3, rounds=6)
BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3
COMPARED: Final = (Variant.NO_PDL, Variant.STOCK, Variant.LEGAL, Variant.ONE_READ)
FIRST_US: Final = {
    (BF16, 1): (128, 124, 113, 103),
    (BF16, 2): (78, 73, 62.5, 53),
    (BF16, 4): (51, 46, 36.5, 28),
    (BF16, 8): (38, 33, 24.6, 16),
    (FP8, 1): (80, 75, 64, 55),
    (FP8, 2): (52, 47, 37, 29),
    (FP8, 4): (38, 33, 24.6, 16),
    (FP8, 8): (32, 27, 19.0, 9.7),
}
"""Of `COMPARED`, by weights and ranks."""

FIRST_ALL_EARLY_US: Final = {(BF16, 4): 30}
FIRST_READS_US: Final = (1.9, 2.2, 2.7, 3.7, 5.9, 9.6, 16.6, 30.8, 59.6, 116.7)
"""Of 1 MiB, 2 MiB and so on to 512 MiB."""


def main() -> None:
    """Measure, and print both tables."""
    start_s = time.monotonic()
    device = resolve("cuda")
    print(torch.cuda.get_device_name(device))
    heads = "".join(f"{name:>20}" for name in (*COMPARED, Variant.ALL_EARLY))
    print(f"{'weights':12}{'tp':>3}{'MB':>7}{heads}   legal / one read")
    deviations = []
    for (weights, ranks), first in FIRST_US.items():
        spec = LayerSpec(
            model=preset("qwen3-30b-a3b"),
            weight_dtype=weights,
            tp=ranks,
            shard_shaped=ranks > 1,
        )
        chain = {STANDARD: standard_chain(spec, EXPERTS)}
        bounds = measure_bounds(chain, activation_bytes(spec), device, EFFORT)
        known = (*first, FIRST_ALL_EARLY_US.get((weights, ranks)))
        line, found = row(bounds, known)
        deviations += found
        print(f"{weights:12}{ranks:3}{bounds[0].bytes / 1e6:7.1f}{line}", flush=True)
    reads = measure_reads(device, EFFORT)
    print(f"\n{'cold read':>12}{'µs':>20}{'TB/s':>8}")
    for read, first_us in zip(reads, FIRST_READS_US, strict=False):
        cell, found = beside(read.duration_ns / 1e3, first_us)
        deviations += found
        speed = read.bytes / read.duration_ns / 1e3
        print(f"{read.bytes >> 20:8} MiB{cell}{speed:8.2f}")
    print(
        f"\nlargest deviation {max(deviations, key=abs):+.1%}, "
        f"{time.monotonic() - start_s:.0f} s in all"
    )


def row(
    bounds: Sequence[Bound], known_us: Sequence[float | None]
) -> tuple[str, list[float]]:
    """A row's cells, those of `COMPARED` and all early, and their deviations."""
    found_us = {bound.name: bound.pass_ns / 1e3 for bound in bounds}
    cells, deviations = [], []
    for name, first_us in zip((*COMPARED, Variant.ALL_EARLY), known_us, strict=True):
        cell, found = beside(found_us[name], first_us)
        cells.append(cell)
        deviations += found
    ratio = found_us[Variant.LEGAL] / found_us[Variant.ONE_READ]
    return f"{''.join(cells)}{ratio:19.2f}", deviations


def beside(found_us: float, first_us: float | None) -> tuple[str, list[float]]:
    """Found, first and the deviation, 20 characters wide; and the deviation itself."""
    if first_us is None:
        return f"{found_us:7.1f}{'':13}", []
    deviation = found_us / first_us - 1
    return f"{found_us:7.1f} {first_us:5g} {deviation:+6.1%}", [deviation]


if __name__ == "__main__":
    ArgumentParser(
        description=__doc__, formatter_class=RawDescriptionHelpFormatter
    ).parse_args()
    try:
        main()
    except LayerscopeError as error:
        sys.exit(str(error))
