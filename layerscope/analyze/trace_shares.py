"""How the time of a trace divides among its kernels, layers and regions, exactly.

The same division as that of a run (`shares`): one frontier runs through all work of a
device, and what a kernel adds to it, its gap included, is the kernel's own.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from layerscope.analyze.intervals import sweep

LINE: Final = ("device",)
"""What has a frontier of its own."""

STEP_KEYS: Final = ("device", "step", "step_kind")
LAYER_KEYS: Final = (*STEP_KEYS, "layer", "variant")

BETWEEN: Final = "between steps"
"""In place of a region: the gaps before the first kernels of steps."""

_SUMS: Final = ("share_ns", "gap_ns", "duration_ns", "hidden_ns")


def swept_kernels(placed: pl.DataFrame) -> pl.DataFrame:
    """What every kernel, copy and fill of every device adds to its frontier.

    The time of a device begins with its first kernel and ends with its last: a copy
    that is seconds away from either is no gap of the model.

    Args:
        placed: `schema.PLACED_KERNELS`.

    Returns:
        Its rows between the first and the last kernel of their device, in its order,
        with Int64 end_ns, gap_ns, exclusive_ns, hidden_ns, share_ns, frontier_ns (after
        it) and node (its row in `placed`). On each device
        ``sum(gap) + sum(exclusive) = sum(share) = last end - first start``, and
        ``sum(duration) - sum(hidden)`` is the time in which anything ran.
    """
    start, end = pl.col("start_ns"), pl.col("end_ns")
    is_kernel = pl.col("kind") == "kernel"
    timed = placed.with_columns(
        end_ns=start + pl.col("duration_ns"),
        node=pl.int_range(pl.len(), dtype=pl.Int64),
    )
    within = timed.filter(
        start >= start.filter(is_kernel).min().over(LINE),
        start <= end.filter(is_kernel).max().over(LINE),
    )
    hidden = pl.col("duration_ns") - pl.col("exclusive_ns")
    return sweep(within, LINE).with_columns(
        hidden_ns=hidden, share_ns=pl.col("gap_ns") + pl.col("exclusive_ns")
    )


def device_totals(swept: pl.DataFrame) -> pl.DataFrame:
    """What ran on every device, and for how long nothing did.

    Args:
        swept: from `swept_kernels`.

    Returns:
        One row a device, sorted: device, and Int64 kernels, copies (fills too),
        streams, span_ns (first start to last end), sum_ns (of durations), busy_ns (of
        their union) and gap_ns. ``span = busy + gap``.
    """
    is_kernel = pl.col("kind") == "kernel"
    return (
        swept.group_by(LINE)
        .agg(
            kernels=is_kernel.sum().cast(pl.Int64),
            copies=(~is_kernel).sum().cast(pl.Int64),
            streams=pl.struct("process", "context", "stream").n_unique().cast(pl.Int64),
            span_ns=pl.col("share_ns").sum(),
            sum_ns=pl.col("duration_ns").sum(),
            busy_ns=pl.col("exclusive_ns").sum(),
            gap_ns=pl.col("gap_ns").sum(),
        )
        .sort(LINE)
    )


def step_shares(swept: pl.DataFrame) -> pl.DataFrame:
    """What every step adds to the frontier of its device.

    Args:
        swept: from `swept_kernels`.

    Returns:
        One row a step, sorted: the columns of `STEP_KEYS`, and Int64 layers, kernels,
        share_ns, gap_ns, duration_ns, hidden_ns, and before_ns: the gap before its
        first kernel, which is in none of the others.
    """
    within = swept.filter(pl.col("step").is_not_null())
    return (
        _without_before(within)
        .group_by(STEP_KEYS, maintain_order=True)
        .agg(
            pl.col("layer").drop_nulls().n_unique().cast(pl.Int64).alias("layers"),
            pl.len().cast(pl.Int64).alias("kernels"),
            pl.col(_SUMS).sum(),
            pl.col("before_ns").sum(),
        )
        .sort("device", "step")
    )


def _without_before(swept: pl.DataFrame) -> pl.DataFrame:
    """Take the gap before a step from its first kernel, and put it into before_ns."""
    is_first = pl.int_range(pl.len()).over("device", "step") == 0
    begins = pl.col("step").is_not_null() & is_first
    before = pl.when(begins).then(pl.col("gap_ns")).otherwise(0)
    return swept.with_columns(
        before_ns=before,
        gap_ns=pl.col("gap_ns") - before,
        share_ns=pl.col("share_ns") - before,
    )


def in_steps(swept: pl.DataFrame) -> pl.DataFrame:
    """The kernels of steps, with the gaps between steps under the region `BETWEEN`.

    The gap before step 0 of a device is none: nothing tells what was waited for. Steps
    keep their numbers where some are left out, so each is told alike beside the others
    and without them.

    Args:
        swept: from `swept_kernels`, or more columns of the same.

    Returns:
        All of `swept` where it has no steps.
    """
    within = swept.filter(pl.col("step").is_not_null())
    if within.is_empty():
        return swept
    begins = pl.int_range(pl.len()).over("device", "step") == 0
    is_first = begins & (pl.col("step") == 0)
    gap = pl.col("gap_ns")
    is_between = begins & (gap > 0)
    return within.with_columns(
        gap_ns=pl.when(is_first).then(0).otherwise(gap),
        region=pl.when(is_between).then(pl.lit(BETWEEN)).otherwise("region"),
    )


def region_shares(swept: pl.DataFrame) -> pl.DataFrame:
    """What every region of every layer of every step adds to the frontier.

    The gap before the first kernel of a step is no layer's: it lies between steps.

    Args:
        swept: from `swept_kernels`.

    Returns:
        One row a (step, layer, region), in the order of first starts: the columns of
        `LAYER_KEYS`, region, and Int64 kernels, share_ns, gap_ns, duration_ns and
        hidden_ns, where ``share = gap + duration - hidden``. What lies outside steps or
        layers has nulls there; a last row a device has the gaps before steps under the
        region `BETWEEN`. So all rows add up to the span.
    """
    apart = _without_before(swept)
    shares = apart.group_by(*LAYER_KEYS, "region", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("kernels"), pl.col(_SUMS).sum()
    )
    before = (
        apart.group_by("device", maintain_order=True)
        .agg(share_ns=pl.col("before_ns").sum())
        .filter(pl.col("share_ns") > 0)
        .with_columns(region=pl.lit(BETWEEN), gap_ns=pl.col("share_ns"))
    )
    between = pl.concat([shares.clear(), before], how="diagonal").with_columns(
        pl.col("kernels", "duration_ns", "hidden_ns").fill_null(0)
    )
    return pl.concat([shares, between])


def layer_medians(shares: pl.DataFrame) -> pl.DataFrame:
    """A layer of every kind, region by region: medians over layers and steps.

    A region without kernels in a layer counts there as one with zeros, so that mean
    shares add up. Medians do not; the row of the whole layer has those of the sums.

    Args:
        shares: from `region_shares`.

    Returns:
        One row a (device, step_kind, variant, region) in the order of first starts,
        and after those of a variant one of a null region, the whole layer. Columns
        layers (Int64, over all steps); Float64 kernels, share_ns, gap_ns, duration_ns,
        hidden_ns (medians) and mean_share_ns.
    """
    within = shares.filter(pl.col("layer").is_not_null())
    layers = within.select(LAYER_KEYS).unique(maintain_order=True)
    kinds = ["device", "step_kind", "variant"]
    regions = within.select(*kinds, "region").unique(maintain_order=True)
    filled = (
        layers.join(regions, on=kinds, nulls_equal=True, maintain_order="left_right")
        .join(
            within,
            on=[*LAYER_KEYS, "region"],
            how="left",
            nulls_equal=True,
            maintain_order="left",
        )
        .with_columns(pl.col("kernels", *_SUMS).fill_null(0))
    )
    whole = filled.group_by(LAYER_KEYS, maintain_order=True).agg(
        pl.col("kernels", *_SUMS).sum(), region=pl.lit(None, pl.String)
    )
    order = pl.concat([filled, whole.select(filled.columns)])
    return _medians(order, [*kinds, "region"]).sort(
        "device", "step_kind", "variant", maintain_order=True
    )


def _medians(rows: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    sums = [each for each in _SUMS if each != "share_ns"]
    return rows.group_by(by, maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("layers"),
        pl.col("kernels").median(),
        pl.col("share_ns").median(),
        pl.col("share_ns").mean().alias("mean_share_ns"),
        *(pl.col(each).median() for each in sums),
    )


def step_parts(shares: pl.DataFrame) -> pl.DataFrame:
    """A step of every kind by region, within layers and outside them; means, add up.

    Args:
        shares: from `region_shares`. Without any step, the whole device is taken as
            one, of no kind.

    Returns:
        One row a (device, step_kind, whether in a layer, region), those in layers first
        and else in the order of first starts. Columns steps (Int64), is_in_layer
        (Boolean), region, and Float64 kernels, share_ns, gap_ns, duration_ns and
        hidden_ns a step.
    """
    within = shares.filter(pl.col("step").is_not_null())
    if within.is_empty():
        within = shares.with_columns(step=pl.lit(0, pl.Int64))
    kinds = ["device", "step_kind"]
    steps = within.group_by(kinds).agg(
        pl.col("step").n_unique().cast(pl.Int64).alias("steps")
    )
    names = ("kernels", *_SUMS)
    return (
        within.with_columns(is_in_layer=pl.col("layer").is_not_null())
        .group_by(*kinds, "is_in_layer", "region", maintain_order=True)
        .agg(pl.col(names).sum())
        .join(
            steps, on=["device", "step_kind"], nulls_equal=True, maintain_order="left"
        )
        .with_columns(pl.col(names) / pl.col("steps"))
        .sort(*kinds, ~pl.col("is_in_layer"), maintain_order=True)
        .select(*kinds, "steps", "is_in_layer", "region", *names)
    )
