"""What recorded kernels say of the difference between two arms, cause by cause."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from layerscope.analyze.causes import Cause
from layerscope.analyze.matching import match
from layerscope.analyze.shares import kernel_shares
from layerscope.analyze.typical import TypicalPass, typical_pass
from layerscope.passes import GRAPH_PASS_KEYS
from layerscope.run_header import KernelCost

RECORD_CAUSES: Final[tuple[Cause, ...]] = tuple(
    cause for cause in Cause if cause not in (Cause.OVERLAP, Cause.MIXED)
)
"""What records can tell apart: all causes but overlap, in the order of lines."""

_ROUND: Final = ("capture", "round")
_CELL: Final = ("region", "cause")


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class Records:
    """The used passes of one (arm, experiment)."""

    arm: str

    typical: TypicalPass
    """Its passes with the columns of `shares.kernel_shares`."""

    pass_ns: float
    """Mean increment of all its used passes; NaN without any."""

    hidden_ns: float
    """Mean time of kernels behind the frontier, of the same."""


def records(kernels: pl.DataFrame, arm: str, experiment: str) -> Records:
    """What was recorded of `arm` under `experiment`.

    Args:
        kernels: `schema.KERNELS`, whole replays.
        arm: which one.
        experiment: which of its graphs.
    """
    graph = kernels.filter(pl.col("arm") == arm, pl.col("experiment") == experiment)
    return records_of(kernel_shares(graph), arm)


def records_of(used: pl.DataFrame, arm: str) -> Records:
    """As `records`, for who has the shares of kernels already.

    Args:
        used: from `shares.kernel_shares`, of one graph.
        arm: whose it is.
    """
    passes = used.select(GRAPH_PASS_KEYS).n_unique()
    increments_ns = int(used["gap_ns"].sum()) + int(used["exclusive_ns"].sum())
    return Records(
        arm=arm,
        typical=typical_pass(used),
        pass_ns=increments_ns / passes if passes else math.nan,
        hidden_ns=hidden_ns(used),
    )


def hidden_ns(used: pl.DataFrame) -> float:
    """Mean time of kernels behind the frontier in a pass; NaN of no passes.

    Args:
        used: from `shares.kernel_shares`, of one graph.
    """
    passes = used.select(GRAPH_PASS_KEYS).n_unique()
    behind_ns = int(used["duration_ns"].sum()) - int(used["exclusive_ns"].sum())
    return behind_ns / passes if passes else math.nan


def changes(
    base: Records, other: Records, costs: Sequence[KernelCost] = ()
) -> pl.DataFrame:
    """What a pass of `other` spends more than one of `base`, round by round.

    A kernel spends its exclusive time and the gap that it ends, as in
    `shares.kernel_shares`; `matching` says what either counts for. The profiler writes
    a record between the end of a kernel and the start of the next one, so what it costs
    lengthens gaps, and is subtracted from them. No gap is shorter than nothing: what a
    record costs beyond the mean gap before its kernel is in the kernel's time, and
    subtracted there. What has no grid, as a copy, is taken to cost as much as a kernel
    of one block. Only passes with the arm's typical list of kernels are used, and
    rounds in which both arms have some.

    Args:
        base: the arm compared with.
        other: the arm compared.
        costs: of a record, by blocks, ascending; linear between these, and constant
            beyond them. Without any, nothing is subtracted.

    Returns:
        Columns capture, round, region, cause (of `RECORD_CAUSES`), base_ns and
        other_ns (Float64, mean of a pass), sorted by all but the last two. Every round
        has every region with every cause; over a round, either column adds up to the
        mean increment of the arm, less the cost of its records.
    """
    matching = match(base.typical, other.typical)
    spent = [
        _spent(side.typical, labels, costs)
        for side, labels in ((base, matching.base), (other, matching.other))
    ]
    rounds = spent[0].select(_ROUND).unique().join(spent[1], on=_ROUND, how="semi")
    regions = pl.concat(part.select("region") for part in spent).unique()
    causes = pl.DataFrame({"cause": [cause.value for cause in RECORD_CAUSES]})
    return (
        rounds.join(regions, how="cross")
        .join(causes, how="cross")
        .join(
            spent[0].rename({"spent_ns": "base_ns"}), on=[*_ROUND, *_CELL], how="left"
        )
        .join(
            spent[1].rename({"spent_ns": "other_ns"}), on=[*_ROUND, *_CELL], how="left"
        )
        .with_columns(pl.col("base_ns", "other_ns").fill_null(0.0))
        .sort(*_ROUND, *_CELL)
    )


def _spent(
    typical: TypicalPass, labels: pl.DataFrame, costs: Sequence[KernelCost]
) -> pl.DataFrame:
    """Mean of a pass: (capture, round, region, cause, spent_ns)."""
    key = ["region", "ordinal"]
    passes = pl.struct("replay", "pass_index").n_unique()
    counts = typical.alike.group_by(_ROUND).agg(passes=passes)
    rows = typical.alike.join(labels, on=key)
    gaps = rows.select(*_ROUND, "region", cause="gap_cause", spent_ns="gap_ns")
    durations = rows.select(*_ROUND, *_CELL, spent_ns="exclusive_ns")
    added = _added(typical, costs).join(labels, on=key).sort(key)
    added = (
        pl.concat(
            [
                added.select("region", cause="gap_cause", cost_ns="in_gap_ns"),
                added.select("region", "cause", cost_ns="in_kernel_ns"),
            ]
        )
        .group_by(_CELL, maintain_order=True)
        .agg(pl.col("cost_ns").sum())
    )
    mean = pl.col("spent_ns") / pl.col("passes") - pl.col("cost_ns").fill_null(0.0)
    return (
        pl.concat([gaps, durations])
        .group_by(*_ROUND, *_CELL)
        .agg(pl.col("spent_ns").sum())
        .join(counts, on=_ROUND)
        .join(added, on=_CELL, how="left")
        .select(*_ROUND, *_CELL, spent_ns=mean)
    )


def _added(typical: TypicalPass, costs: Sequence[KernelCost]) -> pl.DataFrame:
    """What a record costs, by kernel: (region, ordinal, in_gap_ns, in_kernel_ns)."""
    key = ["region", "ordinal"]
    gaps = typical.alike.group_by(key).agg(pl.col("gap_ns").mean())
    in_gap = pl.min_horizontal("cost_ns", "gap_ns")
    return (
        with_observer_cost(typical.kernels, costs)
        .join(gaps, on=key)
        .select(*key, in_gap_ns=in_gap, in_kernel_ns=pl.col("cost_ns") - in_gap)
    )


def with_observer_cost(
    kernels: pl.DataFrame, costs: Sequence[KernelCost]
) -> pl.DataFrame:
    """`kernels`, and what the profiler adds to each and the gap before it.

    Args:
        kernels: with the columns grid_x, grid_y and grid_z, null where there is none.
        costs: as for `changes`.

    Returns:
        With a column more, Float64 ``cost_ns``.
    """
    if not costs:
        return kernels.with_columns(cost_ns=pl.lit(0.0))
    grid = [pl.col(f"grid_{axis}").fill_null(1) for axis in "xyz"]
    blocks = kernels.select(grid[0] * grid[1] * grid[2]).to_series().to_numpy()
    added = np.interp(
        blocks, [cost.blocks for cost in costs], [cost.added_ns for cost in costs]
    )
    return kernels.with_columns(cost_ns=pl.Series(added, dtype=pl.Float64))
