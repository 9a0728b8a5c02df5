"""Unbroken stretches in which one pass, or one region of it, moves the frontier."""

from collections.abc import Sequence

import polars as pl

from layerscope.passes import REPLAY_KEYS


def stretches(pictured: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Time as it is divided among passes or regions: every nanosecond has one owner.

    A kernel owns the gap that it ends and the part of its own time in which nothing
    before it still runs (see `shares.kernel_shares`). Neighbours in time with the same
    owner are one stretch. So the stretches of a pass add up to its increment, those of
    a region in a pass to its share, and no two overlap. What is wholly hidden behind
    other kernels has none.

    Args:
        pictured: `median_pass.PICTURED`, of any passes, whose starts are on one line of
            time in every replay.
        by: what owns: ``pass_index``, or that and ``region``.

    Returns:
        `shares.REPLAY_KEYS`, the columns of `by`, and Int64 start_ns, end_ns, kernels
        (how many own a part of it) and gap_ns; sorted by replay and start.
    """
    keys = (*REPLAY_KEYS, *by)
    start, end, gap = pl.col("start_ns"), pl.col("end_ns"), pl.col("gap_ns")
    exclusive = pl.col("duration_ns") - pl.col("hidden_ns")
    owned = pictured.select(
        *keys,
        "node",
        "gap_ns",
        "end_ns",
        start_ns=pl.when(gap > 0).then(start - gap).otherwise(end - exclusive),
    ).filter(start < end)
    in_order = owned.sort(*REPLAY_KEYS, "start_ns")
    hole = (start != end.shift(1)).fill_null(value=False).cum_sum()
    return (
        in_order.with_columns(_stretch=pl.struct(*keys, _hole=hole).rle_id())
        .group_by("_stretch", maintain_order=True)
        .agg(
            pl.col(*keys, "start_ns").first(),
            end.last(),
            kernels=pl.len().cast(pl.Int64),
            gap_ns=gap.sum(),
        )
        .drop("_stretch")
    )
