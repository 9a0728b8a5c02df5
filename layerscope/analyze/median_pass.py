"""The passes that pictures show: the median one of each arm, and those beside it."""

from typing import Final

import polars as pl

from layerscope.analyze.shares import increments, swept_replays
from layerscope.passes import PASS_KEYS, REPLAY_KEYS, first_pass, used_passes
from layerscope.schema import KERNELS, Schema

PICTURED: Final[Schema] = {
    **{
        name: dtype
        for name, dtype in KERNELS.items()
        if name not in ("pass_start_ns", "start_ns")
    },
    "replay_start_ns": pl.Int64(),  # since the replay's first start
    "start_ns": pl.Int64(),  # since the start of the median pass, or of its own
    "end_ns": pl.Int64(),
    "gap_ns": pl.Int64(),  # idle time that the kernel ended
    "hidden_ns": pl.Int64(),  # part of duration_ns behind the frontier
    "place": pl.Int64(),  # passes after the median one, or after the first used one
    "increment_ns": pl.Int64(),  # of the kernel's pass
}
"""One row a kernel of a pictured pass."""

_ARM_KEYS: Final = ("arm", "experiment")


def pictured_kernels(
    kernels: pl.DataFrame,
    *,
    around: int | None = 1,
    medians: pl.DataFrame | None = None,
) -> pl.DataFrame:
    """The kernels of each (arm, experiment) in its median pass and in those beside it.

    The start of a pass is the frontier (see `shares.kernel_shares`) before its first
    kernel in order of starts. So while passes do not alternate, its increment runs
    from 0: a gap at the head of a pass is part of it, and a kernel that starts while
    the pass before still runs has a negative start.

    Args:
        kernels: `schema.KERNELS`, whole replays.
        around: how many passes to keep on either side of the median pass, in the same
            replay; those at its ends are kept too, though no share counts them. Their
            starts are since the start of the median pass. None keeps all used passes of
            all replays, each with starts since its own.
        medians: the median passes, for who has them already; (arm, experiment) that
            have none there have no row.

    Returns:
        `PICTURED`, sorted by arm, experiment, replay, and start, end and node in it.
        An (arm, experiment) whose replays have fewer than three passes has no row.
    """
    if around is None:
        return _finish(used_passes(_placed(_swept(kernels))))
    chosen = median_passes(kernels) if medians is None else medians
    replays = kernels.join(chosen, on=REPLAY_KEYS, how="semi")
    medians = chosen.select(*REPLAY_KEYS, _median="pass_index")
    index = pl.col("pass_index")
    rows = _swept(replays).join(medians, on=REPLAY_KEYS)
    begin = pl.col("_begin_ns").filter(index == pl.col("_median")).first()
    return _finish(
        rows.with_columns(
            place=index - pl.col("_median"), _begin_ns=begin.over(REPLAY_KEYS)
        ).filter(index >= 0, pl.col("place").abs() <= around)
    )


def whole_replays(kernels: pl.DataFrame) -> pl.DataFrame:
    """Every kernel, those of passes that no share counts too.

    Args:
        kernels: `schema.KERNELS`, whole replays.

    Returns:
        `PICTURED`, sorted as from `pictured_kernels`; starts are since the first start
        of the replay, and places count from its second pass, the first used one.
    """
    return _finish(_placed(_swept(kernels)).with_columns(_begin_ns=pl.lit(0)))


def median_passes(kernels: pl.DataFrame) -> pl.DataFrame:
    """The pass of every (arm, experiment) whose increment is the median of all used.

    Of an even number the lower median counts, and of passes with that increment the
    earliest.

    Args:
        kernels: `schema.KERNELS`, whole replays.

    Returns:
        `shares.PASS_KEYS` and Int64 increment_ns, one row an (arm, experiment).
    """
    return _medians(increments(kernels))


def median_passes_of(shares: pl.DataFrame) -> pl.DataFrame:
    """As `median_passes`, for who has the shares of regions already.

    Args:
        shares: `schema.PASS_SHARES`.
    """
    summed = shares.group_by(PASS_KEYS).agg(increment_ns=pl.col("share_ns").sum())
    return _medians(summed.sort(PASS_KEYS))


def _medians(passes: pl.DataFrame) -> pl.DataFrame:
    increment = pl.col("increment_ns")
    median = increment.sort().get((pl.len() - 1) // 2)
    return passes.filter((increment == median).over(_ARM_KEYS)).unique(
        _ARM_KEYS, keep="first", maintain_order=True
    )


def _swept(kernels: pl.DataFrame) -> pl.DataFrame:
    """Kernels in their order within the replay, and what is known of their passes.

    Starts and ends are since the replay's first start, as is ``_begin_ns``, the start
    of the kernel's pass.
    """
    replay, one_pass = pl.col("_replay"), ("_replay", "pass_index")
    start, frontier = pl.col("start_ns"), pl.col("frontier_ns")
    advance = pl.col("gap_ns") + pl.col("exclusive_ns")
    return (
        swept_replays(kernels)
        .with_columns(_replay=pl.struct(REPLAY_KEYS).rle_id())  # quicker than its keys
        .with_columns(_before_ns=frontier.shift(1).over(replay).fill_null(start))
        .with_columns(
            _begin_ns=pl.col("_before_ns").first().over(one_pass),
            # What its kernels move the frontier by, see `shares.increments`.
            increment_ns=advance.sum().over(one_pass),
        )
    )


def _placed(rows: pl.DataFrame) -> pl.DataFrame:
    """`rows` of `_swept` with places from the second pass, the first used one."""
    first = first_pass().over("_replay").fill_null(0)
    return rows.with_columns(place=pl.col("pass_index") - first - 1)


def _finish(rows: pl.DataFrame) -> pl.DataFrame:
    """`PICTURED`, with starts since ``_begin_ns``."""
    begin = pl.col("_begin_ns")
    return rows.with_columns(
        replay_start_ns=pl.col("start_ns"),
        start_ns=pl.col("start_ns") - begin,
        end_ns=pl.col("end_ns") - begin,
        hidden_ns=pl.col("duration_ns") - pl.col("exclusive_ns"),
    ).select(*PICTURED)
