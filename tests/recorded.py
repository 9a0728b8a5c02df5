"""What is recorded under fixtures/, as several tests name it."""

from itertools import product
from typing import Final

BACKEND_SHAPES: Final = tuple(
    f"tp{tp}-rows{rows}-{weights}"
    for tp, rows, weights in product((1, 4, 8), (1, 6, 8), ("bfloat16", "float8_e4m3"))
)
"""Layers that `standard` and `nvidia_mega` run, by what follows the model's name."""

MANY_ROWS: Final = ("tp4-rows64-bfloat16", "tp4-rows256-bfloat16")
"""Layers of more rows than they run; the last is without torch_compile."""
