"""Records the runs under fixtures/backends on NVIDIA GPUs, and prints a line of each.

Usage: ``python -m benchmarks.record_backends FOLDER [PATTERN [SECONDS]]``. Qwen3-30B-A3B behind
8,192 tokens, whole and as the slice of one rank of four and of eight, at 1, 6 and 8
rows, in bf16 and with fp8 weights; at 64 and 256 rows where the fused backends end. All
arms are in one study each, the standard chain with stock programmatic launch first, for
the others are compared with it. One case once more with every switch by itself, and
with stamps. Otherwise as `record_fixtures`.
"""

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

from benchmarks.record_fixtures import Case, arguments, record_all

MODEL: Final = "qwen3-30b-a3b"
GATES: Final = (
    Case(MODEL, 4, 6, "bfloat16"),
    Case(MODEL, 8, 6, "bfloat16"),
    Case(MODEL, 4, 6, "float8_e4m3"),
    Case(MODEL, 1, 6, "bfloat16"),
)
"""Those with longer anchors; all have experiments and limits."""

RANKS: Final = (1, 4, 8)
ROWS: Final = (1, 6, 8)
MANY_ROWS: Final = (64, 256)
WEIGHTS: Final = ("bfloat16", "float8_e4m3")
FUSED: Final = "standard,standard:pdl=off,nvidia_mega"
DRAFTED_ROWS: Final = 6
"""With the draft after the layer."""

SLOWEST_ROWS: Final = 256
"""So many rows torch.compile takes minutes for."""

APART: Final = Case(MODEL, 8, 6, "bfloat16")
"""That whose switches are told apart, and whose blocks are stamped."""

WHOLE: Final = ("--captures", "5", "--samples", "250", "--time-budget", "60")
SHORT: Final = ("--captures", "3", "--samples", "150", "--time-budget", "20")
NO_DRAFT: Final = ("--no-draft",)


EACH_SWITCH: Final = (
    *("--each-switch", *NO_DRAFT),
    *("--captures", "3", "--samples", "150", "--time-budget", "45"),
)
STAMPS: Final = ("--stamps", *NO_DRAFT, *SHORT)


def cases() -> Iterator[Case]:
    """Every shape, the most telling first."""
    yield from GATES
    for rows in MANY_ROWS:
        yield Case(MODEL, 4, rows, "bfloat16")
    for ranks, weights, rows in product(RANKS, WEIGHTS, ROWS):
        case = Case(MODEL, ranks, rows, weights)
        if case not in GATES:
            yield case


def _arms(case: Case) -> str:
    return FUSED if case.rows == SLOWEST_ROWS else f"{FUSED},torch_compile"


def studies() -> Iterator[tuple[str, list[str]]]:
    """Name and flags of each, the most telling first."""
    apart = "--arms", "standard,nvidia_mega", *APART.flags
    for case in cases():
        effort = WHOLE if case in GATES else SHORT
        draft = () if case.rows == DRAFTED_ROWS else NO_DRAFT
        yield case.name, ["--arms", _arms(case), *case.flags, *effort, *draft]
        if case == GATES[-1]:
            yield f"{APART.name}-each-switch", [*apart, *EACH_SWITCH]
            yield f"{APART.name}-stamps", [*apart, *STAMPS]


def main(folder: Path, pattern: str, seconds: float) -> None:
    """Record every study into `folder`, and print one line each."""
    compiled = (case for case in cases() if case.rows != SLOWEST_ROWS)
    record_all(folder, pattern, studies(), compiled, seconds)


if __name__ == "__main__":
    main(*arguments(sys.argv[1:]))
