"""How many kernels run at any time."""

from collections.abc import Sequence

import polars as pl


def running(kernels: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Every change of the number of kernels that run at the same time.

    Args:
        kernels: Int64 columns ``start_ns`` and ``end_ns``, and the columns in `by`.
        by: columns, at least one, whose values together name a line.

    Returns:
        The columns of `by`, and Int64 at_ns and running, which holds from then to the
        next change; sorted. A kernel of no length changes nothing.
    """
    starts = kernels.select(*by, at_ns="start_ns", step=pl.lit(1, pl.Int64))
    ends = kernels.select(*by, at_ns="end_ns", step=pl.lit(-1, pl.Int64))
    step = pl.col("step")
    return (
        pl.concat([starts, ends])
        .group_by(*by, "at_ns")
        .agg(step.sum())
        .filter(step != 0)
        .sort(*by, "at_ns")
        .select(*by, "at_ns", running=step.cum_sum().over(by))
    )
