"""Kernels in the ranges that name steps."""

from typing import Final

import polars as pl

from layerscope.analyze.step_names import step_ranges
from layerscope.schema import INT, TEXT

_AS_GOOD: Final = 0.5
"""Share of the kernels of the best source that a closer one must have."""

_TOLD: Final = {"_step": INT, "step_kind": TEXT, "source": INT}


def steps_by_ranges(kernels: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Take the step in whose range each kernel was launched.

    Of several sources of ranges, the closest to one forward pass is taken that has at
    least half as many kernels as any.

    Args:
        kernels: Of one device, in order, with Int64 _launch_ns, null where the call is
            not in the trace.
        ranges: `schema.TRACE_RANGES`.

    Returns:
        One row a kernel: Int64 _step (any number, null outside), String step_kind, and
        Int64 source.
    """
    named = step_ranges(ranges)
    tried = [
        _by_source(kernels, own)
        for own in named.sort("source", maintain_order=True).partition_by(
            "source", maintain_order=True
        )
    ]
    inside = [each.height - each["_step"].null_count() for each in tried]
    for found, count in zip(tried, inside, strict=True):
        if count and count >= _AS_GOOD * max(inside):
            return found
    return pl.DataFrame(
        {
            name: pl.repeat(None, kernels.height, dtype=dtype, eager=True)
            for name, dtype in _TOLD.items()
        }
    )


def _by_source(kernels: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    is_host = pl.col("device").is_null()
    on_device = pl.col("device").eq_missing(kernels["device"].first())
    host = _apart(ranges.filter(is_host), "process")
    own = _apart(ranges.filter(~is_host & on_device), "stream")
    is_launched = kernels["_launch_ns"].null_count() < kernels.height
    if host.height and is_launched:
        found = _within(kernels, host, "_launch_ns", "process")
        return _during(found, is_open=pl.col("_launch_ns").is_null())
    if not own.height:
        return _during(
            _within(kernels, host, "start_ns", "process"), is_open=pl.lit(value=True)
        )
    # the same step has a range on each stream: the n-th of its name there
    number = pl.struct("name", pl.int_range(pl.len()).over("stream", "name"))
    own = own.with_columns(_step=number.rank("dense").cast(INT) - 1)
    return _during(
        _within(kernels, own, "start_ns", "stream"), is_open=pl.lit(value=True)
    )


def _apart(ranges: pl.DataFrame, by: str) -> pl.DataFrame:
    """Leave out what lies in another range: threads may repeat one, and replays nest.

    Adds Int64 _step.
    """
    ordered = ranges.sort("start_ns", "end_ns", descending=[False, True])
    before = pl.col("end_ns").cum_max().shift(1).over(by)
    return ordered.filter(
        before.is_null() | (pl.col("start_ns") >= before)
    ).with_columns(_step=pl.int_range(pl.len(), dtype=INT))


def _within(
    kernels: pl.DataFrame, ranges: pl.DataFrame, at: str, by: str
) -> pl.DataFrame:
    """The range of its line in which each kernel's time `at` is."""
    # where either side knows one line only, or none, all are of that
    is_told = ranges[by].n_unique() > 1 and kernels[by].null_count() < kernels.height
    key = (pl.col(by).fill_null(-1) if is_told else pl.lit(0)).cast(INT)
    spans = ranges.select(*_TOLD, "end_ns", _at="start_ns", _key=key).sort("_at")
    points = kernels.select("_row", _at=pl.col(at), _key=key).drop_nulls("_at")
    inside = (
        points.sort("_at")
        .join_asof(
            spans, on="_at", by="_key", strategy="backward", check_sortedness=False
        )
        .filter(pl.col("_at") < pl.col("end_ns"))
    )
    return kernels.select("_row", "start_ns", "duration_ns", "_launch_ns").join(
        inside.select("_row", *_TOLD), on="_row", how="left", maintain_order="left"
    )


def _during(found: pl.DataFrame, *, is_open: pl.Expr) -> pl.DataFrame:
    """Give kernels that are open to the step whose other kernels ran around them."""
    end = pl.col("start_ns") + pl.col("duration_ns")
    spans = (
        found.drop_nulls("_step")
        .group_by("_step")
        .agg(
            pl.col("step_kind", "source").first(),
            start_ns=pl.col("start_ns").min(),
            _end_ns=end.max(),
        )
        .sort("start_ns")
    )
    filled = (
        found.filter(pl.col("_step").is_null() & is_open)
        .select("_row", "start_ns")
        .sort("start_ns")
        .join_asof(spans, on="start_ns", strategy="backward")
        .filter(pl.col("start_ns") < pl.col("_end_ns"))
    )
    both = found.join(
        filled.select("_row", *_TOLD), on="_row", how="left", maintain_order="left"
    )
    return both.select(pl.coalesce(name, f"{name}_right").alias(name) for name in _TOLD)
