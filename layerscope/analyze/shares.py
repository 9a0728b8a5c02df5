"""How the time of a pass divides among the regions of the layer, exactly."""

import polars as pl

from layerscope.analyze.intervals import sweep
from layerscope.passes import PASS_KEYS, REPLAY_KEYS, used_passes
from layerscope.regions import in_order
from layerscope.schema import PASS_SHARES


def pass_shares(kernels: pl.DataFrame) -> pl.DataFrame:
    """The split of every used pass among its regions.

    One frontier runs through the whole replay (see `intervals.sweep`). A kernel's gap
    and exclusive time are how far it moves the frontier, and count for the kernel's own
    region and pass; a region's share is the sum over its kernels. So every nanosecond
    of a replay between its first start and its last end belongs to one kernel, and in
    integers ``increment = sum(gap) + sum(duration) - sum(hidden) = sum(share)``.

    The first and the last pass of a replay and what comes before its first pass are
    left out: there the layer runs beside something that is not a layer.

    Args:
        kernels: `schema.KERNELS`, whole replays.

    Returns:
        `schema.PASS_SHARES`, sorted by its keys. A region without kernels in a pass has
        no row there.
    """
    return region_shares(kernel_shares(kernels))


def region_shares(used: pl.DataFrame) -> pl.DataFrame:
    """As `pass_shares`, for who has the shares of kernels already.

    Args:
        used: from `kernel_shares`.
    """
    start, end = pl.col("start_ns"), pl.col("end_ns")
    gap, duration = pl.col("gap_ns"), pl.col("duration_ns")
    return (
        used.group_by(*PASS_KEYS, "region")
        .agg(
            kernels=pl.len().cast(pl.Int64),
            gap_ns=gap.sum(),
            duration_ns=duration.sum(),
            hidden_ns=duration.sum() - pl.col("exclusive_ns").sum(),
            span_ns=end.max() - start.min(),
        )
        .with_columns(share_ns=gap + duration - pl.col("hidden_ns"))
        .select(*PASS_SHARES)
        .sort(*PASS_KEYS, "region")
    )


def kernel_shares(kernels: pl.DataFrame) -> pl.DataFrame:
    """The kernels of every used pass, and by how much each moved the frontier.

    Args:
        kernels: `schema.KERNELS`, whole replays.

    Returns:
        The rows of passes that `pass_shares` uses, sorted by replay and start. Int64
        ``start_ns`` and ``end_ns`` are since the replay's first start, ``gap_ns`` and
        ``exclusive_ns`` as there: over a pass, their sums add up to its increment.
    """
    return used_passes(swept_replays(kernels))


def swept_replays(kernels: pl.DataFrame) -> pl.DataFrame:
    """As `kernel_shares`, of all passes, and of what comes before the first.

    Returns:
        With what `intervals.sweep` adds: Int64 ``frontier_ns`` too.
    """
    start = pl.col("pass_start_ns") + pl.col("start_ns")
    absolute = kernels.with_columns(
        start_ns=start, end_ns=start + pl.col("duration_ns")
    )
    return sweep(absolute, REPLAY_KEYS)


def increments(kernels: pl.DataFrame) -> pl.DataFrame:
    """By how much every used pass moved the end of its replay.

    While the kernels of one pass follow those of another in the order of starts, this
    is the frontier after the pass's last kernel minus the frontier after the previous
    pass's last one, however far the two reach into each other. Where kernels of
    several passes alternate, it is the same difference, added up over every unbroken
    stretch of the pass's kernels. That is the only division in which each advance of
    the frontier counts once, for the pass that caused it: taking the frontier at the
    last node alone would credit a pass with what the next one did in between, and
    taking passes one after another would call a gap what the next one filled.

    Args:
        kernels: `schema.KERNELS`, whole replays.

    Returns:
        Columns arm, experiment, capture, round, replay, pass_index and increment_ns,
        sorted by the former. For the same passes `pass_shares` adds up to the same.
    """
    swept = swept_replays(kernels)
    stretches = (
        swept.with_columns(_stretch=pl.struct(PASS_KEYS).rle_id())
        .group_by(*PASS_KEYS, "_stretch", maintain_order=True)
        .agg(pl.col("frontier_ns").last(), pl.col("start_ns").first())
    )
    after = pl.col("frontier_ns")
    before = after.shift(1).over(REPLAY_KEYS).fill_null(pl.col("start_ns"))
    advanced = stretches.with_columns(increment_ns=after - before)
    return (
        used_passes(advanced)
        .group_by(*PASS_KEYS)
        .agg(pl.col("increment_ns").sum())
        .sort(*PASS_KEYS)
    )


def region_table(shares: pl.DataFrame) -> pl.DataFrame:
    """The regions of every (arm, experiment), over all its passes.

    A pass in which a region has no kernels counts as one with zeros, so that the mean
    shares of an (arm, experiment) add up to its mean increment.

    Args:
        shares: `schema.PASS_SHARES`.

    Returns:
        One row an (arm, experiment, region), regions in order of execution, then those
        of foreign code by name, then ``other`` and ``unassigned``. Columns passes
        (Int64); kernels_min, kernels_max (Int64) and kernels (Float64, median) of a
        pass; and in Float64 ns share_mean_ns, share_median_ns, gap_mean_ns,
        duration_mean_ns, hidden_mean_ns, span_median_ns (of the passes with kernels).
    """
    known = ["arm", "experiment"]
    passes = shares.select(PASS_KEYS).unique()
    regions = shares.select(*known, "region").unique()
    ordered = in_order(regions["region"])
    rank = {region: place for place, region in enumerate(ordered)}
    means = ("share", "gap", "duration", "hidden")
    filled = ("kernels", *(f"{name}_ns" for name in means))
    return (
        passes.join(regions, on=known)
        .join(shares, on=[*PASS_KEYS, "region"], how="left")
        .with_columns(pl.col(filled).fill_null(0))
        .group_by(*known, "region")
        .agg(
            pl.len().cast(pl.Int64).alias("passes"),
            pl.col("kernels").min().alias("kernels_min"),
            pl.col("kernels").max().alias("kernels_max"),
            pl.col("kernels").median().alias("kernels"),
            pl.col("share_ns").median().alias("share_median_ns"),
            *((pl.col(f"{name}_ns").mean().alias(f"{name}_mean_ns")) for name in means),
            pl.col("span_ns").median().alias("span_median_ns"),
        )
        .sort(*known, pl.col("region").replace_strict(rank, return_dtype=pl.Int64))
    )
