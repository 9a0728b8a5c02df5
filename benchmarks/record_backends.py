"""Records the runs under fixtures/backends on NVIDIA GPUs, and prints a line of each.

Usage: ``python -m benchmarks.record_backends FOLDER [PATTERN [SECONDS]]``.
Qwen3-30B-A3B behind 8,192 tokens, whole and as the slice of one rank of four and of
eight, at 1, 6 and 8 rows, in bf16 and with fp8 weights; at 64 and 256 rows where the
fused backends end. All arms are in one study each, the standard chain with stock
programmatic launch first, for the others are compared with it. One case once more with
every switch by itself, and with stamps. Otherwise as `record_fixtures`.
"""

import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Final

from benchmarks.record_fixtures import Case, arguments, record_all

MODEL: Final = "qwen3-30b-a3b"
FUSED: Final = "standard,standard:pdl=off,nvidia_mega"
SLOWEST_ROWS: Final = 256
"""So many rows torch.compile takes minutes for, and the reference much memory."""


def shape(ranks: int, rows: int, weights: str) -> Case:
    """One study."""
    compiled = ["standard", "nvidia_mega"]
    if rows != SLOWEST_ROWS:
        compiled.append("torch_compile")
    return Case(MODEL, ranks, rows, weights, tuple(compiled))


GATES: Final = (
    shape(4, 6, "bfloat16"),
    shape(8, 6, "bfloat16"),
    shape(4, 6, "float8_e4m3"),
    shape(1, 6, "bfloat16"),
)
"""Those with longer anchors; all have experiments and limits."""

RANKS: Final = (8, 4, 1)
ROWS: Final = (6, 1, 8)
MANY_ROWS: Final = (64, 256)
WEIGHTS: Final = ("bfloat16", "float8_e4m3")
DRAFTED_ROWS: Final = 6
"""With the draft after the layer."""

FEWER_PASSES: Final = ("--passes", "6")

APART: Final = shape(8, 6, "bfloat16")
"""That whose switches are told apart, and whose blocks are stamped."""

WHOLE: Final = ("--captures", "5", "--samples", "250", "--time-budget", "60")
FEWER: Final = ("--captures", "3", "--samples", "150")
SHORT: Final = (*FEWER, "--time-budget", "26")
LONGER: Final = (*FEWER, "--time-budget", "45")
"""Where passes are slow, or the draft shares the time: in 26 s there were no limits."""

LONGEST: Final = (*FEWER, "--time-budget", "60")
"""Of 20 arms: in 45 s limits were not always reached."""

NO_DRAFT: Final = ("--no-draft",)

EACH_SWITCH: Final = ("--each-switch", *NO_DRAFT, *LONGEST)
STAMPS: Final = ("--stamps", *NO_DRAFT, *SHORT)


def cases() -> Iterator[Case]:
    """Every shape, the most telling first."""
    yield from GATES
    for rows, ranks, weights in product(ROWS, RANKS, WEIGHTS):
        case = shape(ranks, rows, weights)
        if case not in GATES:
            yield case
    for rows in MANY_ROWS:
        yield shape(4, rows, "bfloat16")


def _arms(case: Case) -> str:
    return FUSED if case.rows == SLOWEST_ROWS else f"{FUSED},torch_compile"


def _effort(case: Case) -> tuple[str, ...]:
    if case in GATES:
        return WHOLE
    is_slow = case.ranks == 1 or case.rows in (DRAFTED_ROWS, *MANY_ROWS)
    return LONGER if is_slow else SHORT


def studies() -> Iterator[tuple[str, list[str]]]:
    """Name and flags of each, the most telling first."""
    apart = "--arms", "standard,nvidia_mega", *APART.flags
    for case in cases():
        draft = () if case.rows == DRAFTED_ROWS else NO_DRAFT
        passes = FEWER_PASSES if case.rows == SLOWEST_ROWS else ()
        flags = *case.flags, *_effort(case), *draft, *passes
        yield case.name, ["--arms", _arms(case), *flags]
        if case == GATES[-1]:
            yield f"{APART.name}-each-switch", [*apart, *EACH_SWITCH]
            yield f"{APART.name}-stamps", [*apart, *STAMPS]


def main(folder: Path, pattern: str, seconds: float) -> None:
    """Record every study into `folder`, and print one line each."""
    record_all(folder, pattern, studies(), cases(), seconds)


if __name__ == "__main__":
    main(*arguments(sys.argv[1:], __doc__))
