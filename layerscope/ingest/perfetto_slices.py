"""Pairs the beginnings and ends of slices, which Perfetto writes apart."""

from typing import Final

import polars as pl

from layerscope.schema import INT, Schema
from layerscope.trace import TraceLog

MARKS: Final[Schema] = {
    "track": INT,
    "at_ns": INT,
    "opens": INT,  # 1 at a beginning, -1 at an end
    "slice": INT,  # of a beginning, the number of the slice; null if of no interest
}
"""One row a beginning or an end, in the order of the file."""


def ends_of(marks: pl.DataFrame, log: TraceLog) -> pl.DataFrame:
    """When the slices of `marks` end: an end closes what was opened last on its track.

    Marks are taken in the order of time, those of one time in that of the file, as
    readers of such traces do.

    Args:
        marks: `MARKS`.
        log: is told of ends without a beginning.

    Returns:
        Int64 ``slice``, those that are not null, and ``end_ns``, null of slices that
        nothing ends.
    """
    track, opens = pl.col("track"), pl.col("opens")
    order = marks.drop_nulls("at_ns").sort("track", "at_ns", maintain_order=True)
    # An end below the lowest level so far closes nothing; from there on, the level
    # counts anew.
    level = opens.cum_sum().over(track)
    lowest = pl.col("_level").cum_min().clip(None, 0)
    leveled = order.with_columns(_level=level).with_columns(
        _lowest=lowest.over(track),
    )
    is_stray = (opens < 0) & (
        pl.col("_lowest") < pl.col("_lowest").shift(1, fill_value=0).over(track)
    )
    log.add("dropped", "ends of slices that never began", _count(leveled, is_stray))
    # A slice is at the level that it opens, and that is left where it ends.
    depth = pl.col("_level") - pl.col("_lowest") + (opens < 0).cast(INT)
    kept = leveled.filter(~is_stray).with_columns(_depth=depth)
    line = ("track", "_depth")
    following = pl.col("opens", "at_ns").shift(-1).over(line)
    nexts = kept.select("slice", "opens", following.name.prefix("next_"))
    is_ended = pl.col("next_opens") < 0
    return nexts.filter((opens > 0) & pl.col("slice").is_not_null()).select(
        "slice", end_ns=pl.when(is_ended).then("next_at_ns")
    )


def _count(frame: pl.DataFrame, condition: pl.Expr) -> int:
    return int(frame.select(condition.sum()).item())
