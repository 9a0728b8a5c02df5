"""Waiting and work told apart by what the blocks of kernels noted.

The time of a pass is cut where it is handed over. With kernels in the order in which
their waits end, W the first end of a wait of a kernel's blocks, E the last end of a
block, and F the latest E of all kernels before it::

    hand-over = max(0, W - F)           everything before has ended, and it still waits
    work      = max(0, E - max(W, F))   what it adds to what was done by then

Both added up over the kernels of a pass are its last end minus its first W, in whole
nanoseconds. A kernel that never waits counts from its begin.
"""

from dataclasses import dataclass
from typing import Final

import msgspec
import numpy as np
import polars as pl

from layerscope.analyze.pass_times import pass_times
from layerscope.analyze.statistics import ANCHOR
from layerscope.analyze.verdicts import Comparison, judge, pair_rounds
from layerscope.experiment import CAPTURED
from layerscope.run import Run

_PASS: Final = ("arm", "reading")
_KERNEL: Final = (*_PASS, "role")


@dataclass(frozen=True, slots=True, kw_only=True)
class StampedPass:
    """A pass of an arm, kernel by kernel."""

    arm: str
    """Whose kernels these are; they were stamped in a build of their own."""

    readings: int
    """Passes that were looked at."""

    kernels: pl.DataFrame
    """A row a kernel, in order; means over readings, in ns as floats.

    ``role``; ``blocks``; ``empty_blocks``, that left at once; ``early_ns``, from the
    begin of its first block to F; ``handover_ns`` and ``work_ns``, as above; of its
    median block ``block_waits_ns``, from its begin to the end of its wait, which early
    work may fill, and ``block_works_ns``, from there to its end; and ``triggers_ns``,
    from when the last block let the next kernel start to the last end. Null of the
    first kernel is what needs one before it.
    """

    tick_ns: int
    """Smallest step of the clock that was seen; 0 where it never moved."""

    cost: Comparison | None
    """What stamps add to a pass; None where too few rounds were measured."""


def stamped_passes(run: Run, floor_ns: float) -> tuple[StampedPass, ...]:
    """Every stamped arm of `run` of which anything was read.

    Args:
        run: a measured one.
        floor_ns: a difference up to it is none.
    """
    if run.stamps.is_empty():
        return ()
    kernels = stamped_kernels(run.stamps)
    times = pass_times(run.samples.filter(pl.col("phase") == ANCHOR))
    found = []
    for arm in run.header.study.arms:
        stamped = msgspec.structs.replace(arm, stamps=True).name
        own = kernels.filter(pl.col("arm") == stamped)
        if not own.is_empty():
            found.append(
                StampedPass(
                    arm=arm.name,
                    readings=own["reading"].n_unique(),
                    kernels=_means(own),
                    tick_ns=_tick_ns(run.stamps.filter(pl.col("arm") == stamped)),
                    cost=_cost(times, arm.name, stamped, floor_ns),
                )
            )
    return tuple(found)


def stamped_kernels(stamps: pl.DataFrame) -> pl.DataFrame:
    """What the blocks of each kernel noted, put together.

    Args:
        stamps: `schema.STAMPS`.

    Returns:
        Columns arm, reading, role, ``blocks``, ``empty_blocks``, then those of
        `StampedPass.kernels` in ns, whole but for medians; in the order of each pass.
        Kernels of which no block noted its end are left out.
    """
    # of a block that left at once nothing counts but its begin
    waited = pl.col("waited_ns").fill_null(pl.col("begun_ns"))
    ends = (
        stamps.with_columns(
            waited_ns=pl.when(pl.col("ended_ns").is_not_null()).then(waited)
        )
        .group_by(_KERNEL)
        .agg(
            blocks=pl.len().cast(pl.Int64),
            empty_blocks=pl.col("ended_ns").null_count().cast(pl.Int64),
            block_waits_ns=(pl.col("waited_ns") - pl.col("begun_ns")).median(),
            block_works_ns=(pl.col("ended_ns") - pl.col("waited_ns")).median(),
            begun_ns=pl.col("begun_ns").min(),
            waited_ns=pl.col("waited_ns").min(),
            triggered_ns=pl.col("triggered_ns").max(),
            ended_ns=pl.col("ended_ns").max(),
        )
        .filter(pl.col("ended_ns").is_not_null())
        .sort(*_PASS, "waited_ns", "role")
    )
    before = pl.col("ended_ns").cum_max().shift(1).over(_PASS)
    begins = pl.max_horizontal("waited_ns", before)
    return ends.select(
        *_KERNEL,
        "blocks",
        "empty_blocks",
        early_ns=before - pl.col("begun_ns"),
        handover_ns=(pl.col("waited_ns") - before).clip(lower_bound=0),
        work_ns=(pl.col("ended_ns") - begins).clip(lower_bound=0),
        block_waits_ns="block_waits_ns",
        block_works_ns="block_works_ns",
        triggers_ns=pl.col("ended_ns") - pl.col("triggered_ns"),
    )


def _means(kernels: pl.DataFrame) -> pl.DataFrame:
    """Over the readings of one arm, kernels in the order of the first."""
    names = kernels.columns[len(_KERNEL) :]
    return kernels.group_by("role", maintain_order=True).agg(pl.col(names).mean())


def _tick_ns(stamps: pl.DataFrame) -> int:
    times = stamps.select(pl.concat_list(pl.col("^.*_ns$")).explode().alias("ns"))
    seen = times["ns"].drop_nulls().unique().sort().to_numpy()
    return int(np.diff(seen).min()) if len(seen) > 1 else 0


def _cost(
    times: pl.DataFrame, plain: str, stamped: str, floor_ns: float
) -> Comparison | None:
    captured = times.filter(pl.col("experiment") == CAPTURED)
    pairs = pair_rounds(captured, plain, stamped)
    return None if pairs.is_empty() else judge(pairs, floor_ns)
