"""The ranks of a job on one clock, and what they wait for each other.

Every rank has a clock of its own, and traces may begin when they like. What all ranks
of a group do at the same time is to end a collective that synchronises them: nobody has
the result before the last one has come. So clocks are set by these ends, and what is
left of their differences is how far the alignment may be trusted.

A collective's kernel runs from the arrival of its rank to the end. Until the last rank
has arrived, it waits; only from there on bytes can arrive everywhere::

    duration = wait (last arrival - own arrival) + transfer (end - last arrival)
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from layerscope.analyze.collectives import (
    SYNCHRONISING,
    Times,
    sequences,
    shift_between,
)
from layerscope.schema import INT, TEXT, Schema

RANKS: Final[Schema] = {
    "rank": INT,
    "offset_ns": INT,  # added to its times, they are on the clock of the first rank
    "error_ns": INT,  # 90 % of its ends are nearer to the median of all ranks
    "collectives": INT,
    "late": INT,  # how often it came last
    "duration_ns": INT,  # wait_ns + transfer_ns
    "wait_ns": INT,
    "transfer_ns": INT,
}
"""One row a rank that could be aligned; sums over its whole collectives."""

COLLECTIVES: Final[Schema] = {
    "group": TEXT,
    "number": INT,  # within the group, from 0
    "collective": TEXT,  # of `collectives.SYNCHRONISING`
    "ranks": INT,
    "last_arrival_ns": INT,  # on the clock of the first rank
    "skew_ns": INT,  # last arrival - first arrival
    "transfer_ns": INT,  # median end - last arrival
    "end_spread_ns": INT,  # last end - first end
    "late_rank": INT,
}
"""One row a collective that all ranks of its group have."""

_ARRIVALS: Final[Schema] = {
    "group": TEXT,
    "place": INT,
    "rank": INT,
    "collective": TEXT,
    "start_ns": INT,
    "end_ns": INT,
}
_COVERED: Final = 0.9
_OUTLYING: Final = 5.0
"""Ends further from the median than so many median deviations are not used."""

_NEAR_NS: Final = 1_000


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class RankKernels:
    """What one rank did."""

    rank: int

    kernels: pl.DataFrame
    """`schema.TRACE_KERNELS`, or more, of its device."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RankAlignment:
    """The ranks of a job on one clock."""

    ranks: pl.DataFrame
    """`RANKS`, by rank."""

    collectives: pl.DataFrame
    """`COLLECTIVES`, by group and number."""

    unaligned: tuple[int, ...]
    """Ranks that share no collective with the others."""

    incomplete: int
    """Collectives that not all ranks of their group have, as at ends of traces."""

    @property
    def error_ns(self) -> int:
        """The largest error of a rank; 0 without any."""
        largest = self.ranks["error_ns"].max()
        return largest if isinstance(largest, int) else 0


def align_ranks(ranks: Sequence[RankKernels]) -> RankAlignment:
    """Align ranks on the ends of the collectives that they share.

    In each group, the ranks' collectives are matched in their order (see
    `collectives.shift_between`). A rank's clock is set against that of the rank, among
    those already set, with which it shares most: by the median of the differences of
    ends, without those that lie far out.

    Args:
        ranks: no two of one number. The first's clock is the common one.
    """
    arrivals = _arrivals(ranks)
    offsets = _offsets([each.rank for each in ranks], arrivals)
    known = pl.DataFrame(
        list(offsets.items()), schema={"rank": INT, "offset_ns": INT}, orient="row"
    )
    offset = pl.col("offset_ns")
    shared = (
        arrivals.join(known, on="rank")
        .with_columns(pl.col("start_ns") + offset, pl.col("end_ns") + offset)
        .with_columns(_of=pl.col("rank").n_unique().over("group"))
        .filter(pl.col("_of") > 1)
    )
    is_whole = pl.len().over("group", "place") == pl.col("_of")
    whole = shared.filter(is_whole)
    counted = shared.select(pl.struct("group", "place").n_unique()).item()
    found = _collectives(whole)
    return RankAlignment(
        ranks=_ranks(whole, known),
        collectives=found,
        unaligned=tuple(each.rank for each in ranks if each.rank not in offsets),
        incomplete=counted - found.height,
    )


def _arrivals(ranks: Sequence[RankKernels]) -> pl.DataFrame:
    """Collectives that synchronise, under their place in the first rank's order."""
    by_rank = {each.rank: sequences(each.kernels) for each in ranks}
    groups = dict.fromkeys(name for own in by_rank.values() for name in own)
    frames = [pl.DataFrame(schema=_ARRIVALS)]
    for group in groups:
        base = next(own[group] for own in by_rank.values() if group in own)
        for rank, own in by_rank.items():
            found = own.get(group)
            shift = None if found is None else shift_between(base, found)
            if found is None or shift is None:
                continue
            size = len(found.kinds)
            frames.append(
                pl.DataFrame(
                    {
                        "group": [group] * size,
                        "place": np.arange(size) + shift,
                        "rank": [rank] * size,
                        "collective": found.kinds,
                        "start_ns": found.starts_ns,
                        "end_ns": found.ends_ns,
                    },
                    schema=_ARRIVALS,
                )
            )
    return pl.concat(frames).filter(pl.col("collective").is_in(SYNCHRONISING))


def _offsets(ranks: Sequence[int], arrivals: pl.DataFrame) -> dict[int, int]:
    """What is added to each rank's times; ranks that share nothing are not there."""
    ends = {
        rank: arrivals.filter(pl.col("rank") == rank).select("group", "place", "end_ns")
        for rank in ranks
    }
    offsets = {ranks[0]: 0} if ranks and ends[ranks[0]].height else {}
    while True:
        best = max(_shared(ends, offsets), key=lambda each: each[2].size, default=None)
        if best is None:
            return offsets
        rank, settled, apart = best
        offsets[rank] = offsets[settled] + _middle(apart)


def _shared(
    ends: Mapping[int, pl.DataFrame], offsets: Mapping[int, int]
) -> Iterator[tuple[int, int, Times]]:
    """Each rank without an offset and one with: how far the ends they share differ."""
    for rank, own in ends.items():
        if rank in offsets:
            continue
        for settled in offsets:
            both = own.join(ends[settled], on=["group", "place"], suffix="_settled")
            if both.height:
                apart = both["end_ns_settled"] - both["end_ns"]
                yield rank, settled, apart.to_numpy()


def _middle(apart: Times) -> int:
    """The median of `apart` without what lies far out."""
    away = np.abs(apart - np.median(apart))
    near = apart[away <= max(_OUTLYING * float(np.median(away)), _NEAR_NS)]
    return round(float(np.median(near)))


def _collectives(whole: pl.DataFrame) -> pl.DataFrame:
    start, end = pl.col("start_ns"), pl.col("end_ns")
    return (
        whole.sort("group", "place", "rank")
        .group_by("group", "place", maintain_order=True)
        .agg(
            pl.col("collective").first(),
            ranks=pl.len().cast(pl.Int64),
            last_arrival_ns=start.max(),
            skew_ns=start.max() - start.min(),
            transfer_ns=end.median().round().cast(pl.Int64) - start.max(),
            end_spread_ns=end.max() - end.min(),
            late_rank=pl.col("rank").get(start.arg_max()),
        )
        .with_columns(number=pl.int_range(pl.len(), dtype=pl.Int64).over("group"))
        .select(*COLLECTIVES)
    )


def _ranks(whole: pl.DataFrame, known: pl.DataFrame) -> pl.DataFrame:
    start, end, key = pl.col("start_ns"), pl.col("end_ns"), ["group", "place"]
    last = start.max().over(key)
    # of equally late ones the lowest rank
    is_late = pl.col("rank") == pl.col("rank").filter(start == start.max()).min().over(
        key
    )
    sums = (
        whole.with_columns(
            _wait=last - start,
            _late=is_late,
            _apart=(end - end.median().over(key)).abs(),
        )
        .group_by("rank")
        .agg(
            error_ns=pl.col("_apart")
            .quantile(_COVERED, interpolation="higher")
            .round()
            .cast(pl.Int64),
            collectives=pl.len().cast(pl.Int64),
            late=pl.col("_late").sum().cast(pl.Int64),
            duration_ns=(end - start).sum(),
            wait_ns=pl.col("_wait").sum(),
        )
    )
    transfer = pl.col("duration_ns") - pl.col("wait_ns")
    return (
        known.join(sums, on="rank", how="left")
        .with_columns(pl.col(sums.columns[1:]).fill_null(0))
        .with_columns(transfer_ns=transfer)
        .select(*RANKS)
        .sort("rank")
    )
