"""Kernels of one stream that overlap: programmatic launches, or branches of a graph.

Work of one stream runs in order, so two of its kernels overlap for few reasons. With
programmatic dependent launch (PDL) the next one begins while the one before drains. And
what runs in parallel branches of a CUDA graph is reported on the stream of the launch.
Neither is overlap of computation and communication, see `trace_communication`.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import polars as pl

from layerscope.analyze.intervals import sweep
from layerscope.schema import TRACE_STREAM

PDL_FROM: Final = 90
"""The first NVIDIA architecture with PDL: sm_90."""

RESOLUTION_NS: Final = 100
"""Records of an H200 reach into each other by 64 ns now and then where the kernels do
not: so much alone is no sign, unless the same pair does it most of the time."""

_REPLAY: Final = (*TRACE_STREAM, "correlation")
_NUMBER: Final = re.compile(r"sm_(\d+)")


class OverlapKind(StrEnum):
    """What lets two kernels of one stream overlap, as far as the trace tells."""

    PROGRAMMATIC = "consistent with PDL"
    BRANCHES = "branches of a graph"
    EITHER = "unknown: PDL or branches of a graph"
    UNKNOWN = "unknown"


def stream_overlaps(
    launched: pl.DataFrame, architectures: Mapping[int, str]
) -> pl.DataFrame:
    """Every kernel that began before what ran before it on its stream had ended.

    The producer of a kernel is the one of the same stream that ended last of those that
    began before it. Copies and fills are left out.

    - Kernels that follow each other, neither inside the other, where PDL exists (sm_90
      and later), launched one by one, or in a graph replay that looks like a chain and
      whose nodes have ids, are consistent with PDL. No trace marks it, so no more than
      that is said.
    - In a graph replay some of whose kernels run inside others, or three at a time, or
      on a device that has no PDL, these are branches of the graph.
    - Other kernels of one replay that follow each other, where PDL exists, may be
      either: branches can take turns.
    - Else it is unknown.

    Args:
        launched: from `trace_gaps.with_launches`.
        architectures: of devices, such as ``sm_90`` and ``gfx942``.

    Returns:
        One row a kernel with a producer, in order of streams and starts: the columns of
        `schema.TRACE_STREAM`, name, region, producer, producer_region, start_ns, Int64
        overlap_ns (0 where there is none; over a stream they add up to the sum of
        durations less their union), is_nested (Boolean) and kind (null where there is
        no overlap).
    """
    kernels = launched.filter(pl.col("kind") == "kernel").drop(
        "gap_ns", "exclusive_ns", "frontier_ns", "hidden_ns"
    )
    chained = _with_producers(sweep(kernels, TRACE_STREAM))
    judged = chained.with_columns(
        kind=pl.when(pl.col("overlap_ns") > 0).then(_kind(chained, architectures))
    ).with_columns(kind=_without_resolution())
    return judged.filter(pl.col("producer").is_not_null()).select(
        *TRACE_STREAM,
        *("name", "region", "producer", "producer_region", "start_ns", "overlap_ns"),
        *("is_nested", "kind"),
    )


def _with_producers(swept: pl.DataFrame) -> pl.DataFrame:
    """Name of every kernel the one that held the frontier of its stream before it."""
    leads = pl.col("end_ns") == pl.col("frontier_ns")
    owner = pl.when(leads).then(pl.col("_row")).forward_fill().shift(1)
    before = pl.col("frontier_ns").shift(1)
    numbered = swept.with_columns(
        _row=pl.int_range(pl.len(), dtype=pl.Int64)
    ).with_columns(_owner=owner.over(TRACE_STREAM), _before=before.over(TRACE_STREAM))
    producers = numbered.select(
        _owner="_row",
        producer="name",
        producer_region="region",
        _correlation="correlation",
        _replayed="is_replay",
        _node="graph_node",
    )
    reach = pl.min_horizontal("_before", "end_ns") - pl.col("start_ns")
    return numbered.join(
        producers, on="_owner", how="left", maintain_order="left"
    ).with_columns(
        overlap_ns=reach.clip(0).fill_null(0),
        is_nested=(pl.col("end_ns") <= pl.col("_before")) & (reach > 0),
        _follows=pl.col("_owner") == pl.col("_row") - 1,
    )


def _kind(chained: pl.DataFrame, architectures: Mapping[int, str]) -> pl.Expr:
    """What explains an overlap, of rows that `_with_producers` has made."""
    same_replay = (
        pl.col("is_replay")
        & pl.col("_replayed")
        & (pl.col("correlation") == pl.col("_correlation"))
    )
    eager = ~pl.col("is_replay") & ~pl.col("_replayed")
    deep = (pl.col("overlap_ns") > 0) & ~pl.col("_follows")
    branches = (pl.col("is_nested") | deep).any().over(_REPLAY)
    has_pdl = pl.col("device").is_in(_devices(chained, architectures, has_pdl=True))
    has_none = pl.col("device").is_in(_devices(chained, architectures, has_pdl=False))
    is_tail = pl.col("stream").is_not_null() & pl.col("_follows") & ~pl.col("is_nested")
    odd = pl.col("is_nested") | deep
    has_ids = pl.col("graph_node").is_not_null() & pl.col("_node").is_not_null()
    return (
        pl.when(same_replay & (odd | has_none))
        .then(pl.lit(OverlapKind.BRANCHES.value))
        .when(has_pdl & is_tail & (eager | (same_replay & has_ids & ~branches)))
        .then(pl.lit(OverlapKind.PROGRAMMATIC.value))
        .when(has_pdl & is_tail & same_replay)
        .then(pl.lit(OverlapKind.EITHER.value))
        .otherwise(pl.lit(OverlapKind.UNKNOWN.value))
    )


def _devices(
    kernels: pl.DataFrame, architectures: Mapping[int, str], *, has_pdl: bool
) -> list[int]:
    """Devices of NVIDIA of which it is known that they have PDL, or have not."""
    found = []
    for device in kernels["device"].unique().drop_nulls().to_list():
        match = _NUMBER.fullmatch(architectures.get(device, ""))
        if match and (int(match[1]) >= PDL_FROM) == has_pdl:
            found.append(device)
    return found


def _without_resolution() -> pl.Expr:
    """The kind, but for overlaps that the resolution of time stamps explains."""
    edge = ("producer", "name")
    overlap = pl.col("overlap_ns")
    is_rare = 2 * (overlap > 0).sum().over(edge) < pl.len().over(edge)
    is_small = overlap.max().over(edge) < RESOLUTION_NS
    return (
        pl.when((overlap > 0) & is_small & is_rare)
        .then(pl.lit(OverlapKind.UNKNOWN.value))
        .otherwise(pl.col("kind"))
    )


def overlap_edges(overlaps: pl.DataFrame) -> pl.DataFrame:
    """The overlaps by producer and consumer: how often, and how long.

    Args:
        overlaps: from `stream_overlaps`, of one device.

    Returns:
        One row an edge and kind, largest sum first: producer, producer_region, name,
        region, kind; Int64 overlapping, of (how often the consumer followed the
        producer), nested, overlap_ns (sum), largest_ns, and Float64 median_ns.
    """
    edge = ["producer", "producer_region", "name", "region"]
    overlap = pl.col("overlap_ns")
    followed = overlaps.group_by(edge).agg(of=pl.len().cast(pl.Int64))
    return (
        overlaps.filter(overlap > 0)
        .group_by(*edge, "kind", maintain_order=True)
        .agg(
            overlapping=pl.len().cast(pl.Int64),
            nested=pl.col("is_nested").sum().cast(pl.Int64),
            overlap_ns=overlap.sum(),
            median_ns=overlap.median(),
            largest_ns=overlap.max(),
        )
        .join(followed, on=edge, how="left", nulls_equal=True, maintain_order="left")
        .sort("overlap_ns", descending=True, maintain_order=True)
    )
