"""Intervals on a line of time, swept once from left to right."""

from collections.abc import Sequence

import polars as pl


def sweep(intervals: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Split every interval into what moves the frontier and what lies behind it.

    The frontier F of an interval is the latest end of those before it in the order
    (start, end, node); for the first of a line it is that interval's own start. Then
    ``gap = max(0, start - F)`` and ``exclusive = max(0, end - max(start, F))``. Over a
    line, the exclusive times add up to the length of the union of the intervals, and
    with the gaps to the time from the first start to the last end.

    Args:
        intervals: Int64 columns ``start_ns``, ``end_ns`` and ``node``, the columns
            named in `by`, and any others.
        by: columns, at least one, whose values together name a line.

    Returns:
        `intervals`, sorted by (`by`, start, end, node), and three Int64 columns more:
        ``gap_ns``, ``exclusive_ns`` and ``frontier_ns``, the frontier *after* it.
    """
    start, end = pl.col("start_ns"), pl.col("end_ns")
    before = pl.col("_before")
    return (
        intervals.sort(*by, "start_ns", "end_ns", "node")
        .with_columns(_line=pl.struct(by).rle_id())
        .with_columns(frontier_ns=end.cum_max().over("_line"))
        .with_columns(
            _before=pl.col("frontier_ns").shift(1).over("_line").fill_null(start)
        )
        .with_columns(
            gap_ns=(start - before).clip(0),
            exclusive_ns=(end - pl.max_horizontal(start, before)).clip(0),
        )
        .drop("_line", "_before")
    )
