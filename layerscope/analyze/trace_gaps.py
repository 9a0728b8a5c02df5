"""The gaps of a trace: which kernel ended each, and whether its launch came late."""

from enum import StrEnum
from typing import Final

import polars as pl

from layerscope.schema import LAUNCH_KEYS
from layerscope.trace_names import GRAPH_LAUNCH

_FROM_HOST: Final = "hip"
"""HIP may hand the nodes of a graph over one by one while its launch goes on, so that
any of them can be late; CUDA hands over all of them at once."""


_NO_NUMBER: Final = -1  # in place of the device where a file numbers none


class GapCause(StrEnum):
    """Why a device had nothing to do until a kernel began."""

    LAUNCH = "late launch"
    """Its launch was still to come, or going on, when the device ran out of work."""

    DEVICE = "device"
    """It had been launched: it waited for other work, or for the device to begin."""

    UNKNOWN = "unknown"
    """Its launch is not in the trace, or the clocks of host and device differ."""

    REPLAY = "unknown: inside a graph replay"
    """For a part of it at least, a graph ran whose kernels the trace lacks."""


def with_launches(swept: pl.DataFrame, calls: pl.DataFrame) -> pl.DataFrame:
    """Put the call beside every kernel that it launched.

    Args:
        swept: from `trace_shares.swept_kernels`.
        calls: `schema.TRACE_CALLS`.

    Returns:
        `swept` in its order, and call (its name), call_start_ns, call_end_ns (Int64),
        all null where the trace lacks it, and is_replay (Boolean): whether a launch of
        a whole graph brought it.
    """
    launches = (
        calls.filter(pl.col("correlation").is_not_null())
        .unique(LAUNCH_KEYS, keep="first", maintain_order=True)
        .select(
            *LAUNCH_KEYS,
            call="name",
            call_start_ns="start_ns",
            call_end_ns=pl.col("start_ns") + pl.col("duration_ns"),
        )
    )
    is_node = pl.col("graph_node").is_not_null()
    replays = pl.col("call").str.contains(GRAPH_LAUNCH).fill_null(value=False)
    known = launches.with_columns(pl.col("correlation").cast(pl.Int64))
    return (
        # Nulls in `process` are equal, those in `correlation` are not: a kernel without
        # one joins nothing, as no launch here lacks it.
        swept.join(
            known, on=LAUNCH_KEYS, how="left", nulls_equal=True, maintain_order="left"
        ).with_columns(is_replay=is_node | replays)
    )


def gap_causes(
    launched: pl.DataFrame, ranges: pl.DataFrame | None = None
) -> pl.DataFrame:
    """Say of every gap why there was one.

    A kernel can begin no earlier than its launch. Where the launch ended only after all
    before had, the host is why there was a gap; else the kernel was queued. Of a CUDA
    graph that holds for the first kernel of a replay; the others wait on the device.

    Args:
        launched: from `with_launches`.
        ranges: `schema.TRACE_RANGES`, some of which may be replays without kernels.

    Returns:
        `launched` in its order, with cause (null where there is no gap) and Int64
        late_ns: what of the gap had passed before the launch was even begun.
    """
    gap, start = pl.col("gap_ns"), pl.col("start_ns")
    before = start - gap
    call = pl.col("call")
    is_first = pl.int_range(pl.len()).over(LAUNCH_KEYS) == 0
    is_queued = pl.col("is_replay") & ~is_first & ~call.str.starts_with(_FROM_HOST)
    is_doubtful = call.is_null() | (pl.col("call_start_ns") > start)
    is_late = ~is_queued & (pl.col("call_end_ns") > before)
    cause = (
        pl.when(gap == 0)
        .then(None)
        .when(_has_replay(launched, ranges))
        .then(pl.lit(GapCause.REPLAY.value))
        .when(is_doubtful)
        .then(pl.lit(GapCause.UNKNOWN.value))
        .when(is_late)
        .then(pl.lit(GapCause.LAUNCH.value))
        .otherwise(pl.lit(GapCause.DEVICE.value))
    )
    late = pl.min_horizontal(pl.col("call_start_ns") - before, gap).clip(0)
    return launched.with_columns(
        cause=cause,
        late_ns=pl.when(cause == GapCause.LAUNCH.value).then(late).otherwise(0),
    )


def without_causes(caused: pl.DataFrame) -> pl.DataFrame:
    """`caused` where any gap may be one of kernels that were not recorded.

    Args:
        caused: from `gap_causes`.
    """
    is_told = pl.col("cause").is_null() | (pl.col("cause") == GapCause.REPLAY.value)
    return caused.with_columns(
        cause=pl.when(is_told).then("cause").otherwise(pl.lit(GapCause.UNKNOWN.value)),
        late_ns=pl.lit(0, pl.Int64),
    )


def _has_replay(launched: pl.DataFrame, ranges: pl.DataFrame | None) -> pl.Series:
    """Whether a replay without kernels ran in the gap before each kernel."""
    if ranges is None:
        return pl.repeat(value=False, n=launched.height, dtype=pl.Boolean(), eager=True)
    device = pl.col("device").fill_null(_NO_NUMBER)
    replays = (
        ranges.filter(pl.col("kind") == "graph")
        .select(device, begun="start_ns", ended="end_ns")
        .sort("begun")
        .with_columns(pl.col("ended").cum_max().over("device"))
    )
    gaps = launched.select(
        device, "start_ns", before=pl.col("start_ns") - pl.col("gap_ns")
    )
    last = gaps.join_asof(
        replays,
        left_on="start_ns",
        right_on="begun",
        by="device",
        allow_exact_matches=False,
        check_sortedness=False,  # it cannot be checked by device
    )
    is_in = pl.col("ended") > pl.col("before")
    return last.select(is_in.fill_null(value=False)).to_series()


def gaps_by_owner(caused: pl.DataFrame) -> pl.DataFrame:
    """The gaps that kernels of one name end, for one cause, largest sum first.

    Args:
        caused: from `gap_causes`, of one device.

    Returns:
        Columns region, name, cause, and Int64 gaps, gap_ns (sum), median_ns
        (Float64), largest_ns and late_ns (sum).
    """
    gap = pl.col("gap_ns")
    return (
        caused.filter(gap > 0)
        .group_by("region", "name", "cause", maintain_order=True)
        .agg(
            gaps=pl.len().cast(pl.Int64),
            gap_ns=gap.sum(),
            median_ns=gap.median(),
            largest_ns=gap.max(),
            late_ns=pl.col("late_ns").sum(),
        )
        .sort("gap_ns", descending=True, maintain_order=True)
    )
