"""Communication between ranks in a trace, and what of it computation hides."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import polars as pl

from layerscope.analyze.intervals import sweep
from layerscope.schema import TRACE_STREAM
from layerscope.trace_names import COLLECTIVE


def is_communication() -> pl.Expr:
    """Whether a row of `schema.TRACE_KERNELS` is communication.

    It is where the file tells its collective, and where its name is that of a
    collective, such as those of custom all-reduces.
    """
    is_kernel = pl.col("kind") == "kernel"
    return pl.col("collective").is_not_null() | (
        is_kernel & pl.col("name").str.contains(COLLECTIVE)
    )


def with_exposed(swept: pl.DataFrame) -> pl.DataFrame:
    """What of the exclusive time of communication no computation covers.

    Whatever begins first has the exclusive time of the two, so that of communication
    may hold what computation on another stream does meanwhile.

    Args:
        swept: from `trace_shares.swept_kernels`, of one device.

    Returns:
        `swept` in its order, and Int64 exposed_ns, 0 of all that is no communication.
    """
    talks = swept.filter(is_communication(), pl.col("exclusive_ns") > 0)
    works = swept.filter(~is_communication(), pl.col("kind") == "kernel")
    rows = [pl.DataFrame(schema={"node": pl.Int64, "exposed_ns": pl.Int64})]
    for own in talks.partition_by(*TRACE_STREAM):
        elsewhere = works.join(
            own.select(TRACE_STREAM).head(1),
            on=TRACE_STREAM,
            how="anti",
            nulls_equal=True,
        )
        # A kernel's exclusive time is its last: the frontier only moves on.
        begun = pl.col("end_ns") - pl.col("exclusive_ns")
        covered = _worked(own["end_ns"], elsewhere) - _worked(
            own.select(begun).to_series(), elsewhere
        )
        rows.append(own.select("node", exposed_ns=pl.col("exclusive_ns") - covered))
    return swept.join(
        pl.concat(rows), on="node", how="left", maintain_order="left"
    ).with_columns(pl.col("exposed_ns").fill_null(0))


def _worked(at_ns: pl.Series, kernels: pl.DataFrame) -> pl.Series:
    """For how long, before each instant, at least one of `kernels` had run."""
    swept = sweep(
        kernels.select("start_ns", "end_ns", "node", _all=pl.lit(0)), ["_all"]
    )
    moved = swept.filter(pl.col("exclusive_ns") > 0)
    ends, lengths = moved["end_ns"].to_numpy(), moved["exclusive_ns"].to_numpy()
    before = np.concatenate([[0], np.cumsum(lengths)])
    instants = at_ns.to_numpy()
    place = np.searchsorted(ends, instants, side="right")  # how many have ended
    begun = np.append(ends - lengths, np.iinfo(np.int64).max)[place]
    return pl.Series(before[place] + np.maximum(0, instants - begun), dtype=pl.Int64)


@dataclass(frozen=True, slots=True)
class Communication:
    """Communication of one device; ns."""

    kernels: int

    busy_ns: int
    """In which at least one communication kernel ran."""

    hidden_ns: int
    """What of it computation on another stream covers."""

    cross_stream_ns: int
    """In all, by how much kernels of different streams overlap: the sum of the unions
    of all streams, less their union."""

    same_stream_ns: int
    """By how much kernels of one stream overlap: the sum of durations, less the sum of
    the unions of all streams."""


def communication(swept: pl.DataFrame) -> Communication:
    """What communication takes, and what of it is hidden, on one device.

    Only computation of other streams hides communication: where kernels of one stream
    overlap, the one waits for the other inside itself, see `stream_overlaps`. Copies
    and fills are neither.

    Args:
        swept: from `trace_shares.swept_kernels`, of one device.
    """
    kernels = swept.filter(pl.col("kind") == "kernel").select(
        *TRACE_STREAM, "start_ns", "end_ns", "node", is_talk=is_communication()
    )
    talks = kernels.filter(pl.col("is_talk"))
    hidden = [pl.DataFrame(schema={"start_ns": pl.Int64, "end_ns": pl.Int64})]
    hidden += _hidden(kernels, talks)
    summed = int((kernels["end_ns"] - kernels["start_ns"]).sum())
    by_stream = _union_ns(kernels, *TRACE_STREAM)
    return Communication(
        kernels=talks.height,
        busy_ns=_union_ns(talks),
        hidden_ns=_union_ns(pl.concat(hidden)),
        cross_stream_ns=by_stream - _union_ns(kernels),
        same_stream_ns=summed - by_stream,
    )


def _hidden(kernels: pl.DataFrame, talks: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """For each stream that communicates, when it and computation elsewhere both run."""
    works = kernels.filter(~pl.col("is_talk"))
    for own in talks.partition_by(*TRACE_STREAM):
        stream = own.select(TRACE_STREAM).head(1)
        others = works.join(stream, on=TRACE_STREAM, how="anti", nulls_equal=True)
        if others.height:
            yield _both(own, others)


def _both(one: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """The times at which something of `one` and something of `other` runs."""
    steps = [
        frame.select(
            at=pl.col(column),
            one=pl.lit(sign if is_one else 0, pl.Int64),
            other=pl.lit(0 if is_one else sign, pl.Int64),
        )
        for frame, is_one in ((one, True), (other, False))
        for column, sign in (("start_ns", 1), ("end_ns", -1))
    ]
    counted = pl.concat(steps).group_by("at").agg(pl.col("one", "other").sum())
    return (
        counted.sort("at")
        .select(
            start_ns="at",
            end_ns=pl.col("at").shift(-1),
            is_both=(pl.col("one").cum_sum() > 0) & (pl.col("other").cum_sum() > 0),
        )
        .filter("is_both")
        .select("start_ns", "end_ns")
    )


def _union_ns(intervals: pl.DataFrame, *by: str) -> int:
    """The length of the union of `intervals`, of each line by itself, added up."""
    lines = intervals.with_columns(
        _all=pl.lit(0), node=pl.int_range(pl.len(), dtype=pl.Int64)
    )
    return int(sweep(lines, by or ("_all",))["exclusive_ns"].sum())
