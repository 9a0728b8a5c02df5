"""What ranks on one clock wait for each other in collectives, where that can be told.

A collective's kernel runs from the arrival of its rank to the end. Until the last rank
has arrived, it waits; only from there on bytes can arrive everywhere::

    duration = wait (last arrival - own arrival) + transfer (end - last arrival)

Where the ends of all ranks do not fit better than their arrivals differ, or a
collective ends before its last rank arrives, nobody can tell the two apart: then both
are unknown, and why is told. Of a rank that is not given nothing is known: what the
others wait for it is in their transfer.
"""

from enum import StrEnum
from typing import Final

import polars as pl

from layerscope.schema import INT, TEXT, Schema


class Unsplit(StrEnum):
    """Why waiting and transfer of a collective cannot be told apart."""

    EARLY = "a rank arrives after others have ended"
    """A clock or a match is wrong, by more than its transfer takes."""

    ERROR = "the error of the alignment exceeds the arrival skew"
    """That of its ranks, or what its own ends are apart by."""


RANKS: Final[Schema] = {
    "rank": INT,
    "offset_ns": INT,  # added to its times, they are on the clock of the first rank
    "error_ns": INT,  # 90 % of its ends are nearer to the median of all ranks
    "collectives": INT,
    "split": INT,  # of these, those in which waiting and transfer are known
    "late": INT,  # how often it came last, of `split`
    "duration_ns": INT,  # wait_ns + transfer_ns + unknown_ns
    "wait_ns": INT,
    "transfer_ns": INT,
    "unknown_ns": INT,  # in collectives that are not split
}
"""One row a rank that could be aligned; sums over its whole collectives."""

COLLECTIVES: Final[Schema] = {
    "group": TEXT,
    "number": INT,  # within the group, from 0
    "collective": TEXT,  # of `collectives.SYNCHRONISING`
    "ranks": INT,
    "last_arrival_ns": INT,  # on the clock of the first rank
    # null where it is not split
    "skew_ns": INT,  # last arrival - first arrival
    "transfer_ns": INT,  # median end - last arrival
    "late_rank": INT,
    "end_spread_ns": INT,  # last end - first end
    "unsplit": TEXT,  # one of `Unsplit`; null where it is split
}
"""One row a collective that all ranks of its group have."""

_COVERED: Final = 0.9


def judge(whole: pl.DataFrame) -> pl.DataFrame:
    """What is known of each collective, and of each rank's ends.

    Args:
        whole: String group and collective, Int64 place (equal for the rows of one
            collective of a group), rank, start_ns and end_ns: one row a rank and
            collective, on one clock.

    Returns:
        `whole`, with columns for `waits_of_collectives` and `waits_of_ranks`.
    """
    start, end, key = pl.col("start_ns"), pl.col("end_ns"), ["group", "place"]
    apart = whole.with_columns(
        _last=start.max().over(key),
        _skew=(start.max() - start.min()).over(key),
        _middle=end.median().over(key).round().cast(pl.Int64),
        _spread=(end.max() - end.min()).over(key),
        _apart=(end - end.median().over(key)).abs(),
    ).with_columns(_transfer=pl.col("_middle") - pl.col("_last"))
    covered = pl.col("_apart").quantile(_COVERED, interpolation="higher")
    erred = apart.with_columns(error_ns=covered.over("rank").round().cast(pl.Int64))
    doubt = pl.max_horizontal(pl.col("error_ns").max().over(key), "_spread")
    return erred.with_columns(
        # of equally late ones the lowest rank
        _late=pl.col("rank").filter(start == start.max()).min().over(key),
        unsplit=pl.when(end.min().over(key) < pl.col("_last"))
        .then(pl.lit(Unsplit.EARLY.value))
        .when(doubt > pl.col("_skew"))
        .then(pl.lit(Unsplit.ERROR.value)),
    )


def waits_of_collectives(judged: pl.DataFrame) -> pl.DataFrame:
    """`COLLECTIVES`, by group and number, of what `judge` returns."""
    known = pl.col("unsplit").is_null()
    firsts = judged.sort("group", "place", "rank").group_by(
        "group", "place", maintain_order=True
    )
    return (
        firsts.agg(
            pl.col("collective", "_last", "_skew", "_transfer").first(),
            pl.col("_late", "_spread", "unsplit").first(),
            ranks=pl.len().cast(pl.Int64),
        )
        .with_columns(
            pl.int_range(pl.len(), dtype=pl.Int64).over("group").alias("number"),
            last_arrival_ns="_last",
            skew_ns=pl.when(known).then("_skew"),
            transfer_ns=pl.when(known).then("_transfer"),
            late_rank=pl.when(known).then("_late"),
            end_spread_ns="_spread",
        )
        .select(*COLLECTIVES)
    )


def waits_of_ranks(judged: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    """`RANKS`, by rank.

    Args:
        judged: from `judge`.
        known: Int64 rank and offset_ns of all ranks that could be aligned.
    """
    is_split = pl.col("unsplit").is_null()
    duration = pl.col("end_ns") - pl.col("start_ns")
    sums = judged.group_by("rank").agg(
        pl.col("error_ns").first(),
        collectives=pl.len().cast(pl.Int64),
        split=is_split.sum().cast(pl.Int64),
        late=(is_split & (pl.col("_late") == pl.col("rank"))).sum().cast(pl.Int64),
        duration_ns=duration.sum(),
        wait_ns=(pl.col("_last") - pl.col("start_ns")).filter(is_split).sum(),
        transfer_ns=(pl.col("end_ns") - pl.col("_last")).filter(is_split).sum(),
        unknown_ns=duration.filter(~is_split).sum(),
    )
    return (
        known.join(sums, on="rank", how="left")
        .with_columns(pl.col(sums.columns[1:]).fill_null(0))
        .select(*RANKS)
        .sort("rank")
    )
