"""Which passes of two arms stand for each other, where only records are there."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from layerscope.analyze.shares import swept_replays
from layerscope.analyze.variants import most_common_variants, pass_variants
from layerscope.experiment import CAPTURED
from layerscope.passes import GRAPH_PASS_KEYS, used_passes
from layerscope.run import Run
from layerscope.trace_spec import TraceSpec

SIDES: Final = ("base", "other")
"""What the two arms are called in columns."""


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class Passes:
    """The passes of one arm that are compared."""

    name: str
    """What reports call the arm."""

    rows: pl.DataFrame
    """`shares.swept_replays` of these passes."""

    why_no_gaps: str = ""
    """Why their gaps cannot be told from kernels; empty where they can."""

    @property
    def count(self) -> int:
        """How many there are."""
        return self.rows.select(GRAPH_PASS_KEYS).n_unique()

    @property
    def pass_ns(self) -> float:
        """Mean increment; NaN without any."""
        moved = int(self.rows["gap_ns"].sum()) + int(self.rows["exclusive_ns"].sum())
        return moved / self.count if self.count else math.nan


@dataclass(frozen=True, slots=True, eq=False)
class FacingPasses:
    """Passes of both sides that face each other, each side of one variant."""

    base: pl.DataFrame
    other: pl.DataFrame
    weight: float
    """Part of a mean pass."""


def passes_of(run: Run, arm: str, name: str = "") -> Passes:
    """The passes of an arm of any run, measured or of a trace, as `observed_passes`.

    Args:
        run: what holds the arm.
        arm: which one.
        name: what to call it; its own name if empty.
    """
    spec = run.header.study.spec
    found = observed_passes(run.kernels, arm, name)
    if not isinstance(spec, TraceSpec):
        return found
    return replace(found, why_no_gaps=spec.steps_of(arm).why_no_gaps)


def observed_passes(kernels: pl.DataFrame, arm: str, name: str = "") -> Passes:
    """The passes of `arm` that count; all of them where no replay has three.

    Args:
        kernels: `schema.KERNELS`, whole replays.
        arm: which one.
        name: what to call it; its own name if empty.
    """
    own = kernels.filter(pl.col("arm") == arm, pl.col("experiment") == CAPTURED)
    swept = swept_replays(own)
    used = used_passes(swept)
    if used.is_empty():
        used = swept.filter(pl.col("pass_index") >= 0)
    return Passes(name or arm, used)


def facing_passes(base: pl.DataFrame, other: pl.DataFrame) -> Iterator[FacingPasses]:
    """Pair the passes of two arms, see `observed.observe`; weights add up to 1.

    Args:
        base: `Passes.rows` of what is compared with.
        other: those of what is compared.
    """
    if base.is_empty() or other.is_empty():
        return
    sides = [
        rows.join(pass_variants(rows), on=GRAPH_PASS_KEYS) for rows in (base, other)
    ]
    is_alike = set(base["pass_index"]) == set(other["pass_index"])
    key = ["pass_index"] if is_alike else []
    facing = [
        most_common_variants(
            rows.select(*GRAPH_PASS_KEYS, "variant").unique(maintain_order=True), key
        ).rename({"variant": side})
        for side, rows in zip(SIDES, sides, strict=True)
    ]
    pairs = (
        facing[0].join(facing[1], on=key)
        if key
        else pl.concat(facing, how="horizontal")
    )
    for variants, found in sorted(
        pairs.partition_by(SIDES, as_dict=True, maintain_order=True).items()
    ):
        chosen = [
            rows.filter(pl.col("variant") == variant)
            for rows, variant in zip(sides, variants, strict=True)
        ]
        if key:
            chosen = [rows.join(found, on=key, how="semi") for rows in chosen]
        yield FacingPasses(chosen[0], chosen[1], weight=found.height / pairs.height)
