"""The ranks of a job on one clock, and what they wait for each other.

Every rank has a clock of its own, and traces may begin when they like. What all ranks
of a group do at the same time is to end a collective that synchronises them: nobody has
the result before the last one has come. So clocks are set by these ends, and what is
left of their differences is how far the alignment may be trusted. What ranks wait is
then told by `rank_waits`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl

from layerscope.analyze.collectives import (
    SENDS,
    SYNCHRONISING,
    GroupSequence,
    Times,
    sequences,
    shift_between,
    unnamed_streams,
)
from layerscope.analyze.rank_waits import judge, waits_of_collectives, waits_of_ranks
from layerscope.schema import INT, TEXT, Schema

_ARRIVALS: Final[Schema] = {
    "group": TEXT,
    "place": INT,
    "rank": INT,
    "collective": TEXT,
    "start_ns": INT,
    "end_ns": INT,
}
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
    """`rank_waits.RANKS`, by rank."""

    collectives: pl.DataFrame
    """`rank_waits.COLLECTIVES`, by group and number."""

    unaligned: tuple[int, ...]
    """Ranks that share no collective with the others."""

    incomplete: int
    """Collectives that not all ranks of their group have, as at ends of traces."""

    sends: int = 0
    """Sends and receives of all ranks that may be of an all-to-all or of a pipeline, so
    that they align nothing."""

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
    by_rank = _sequences(ranks)
    arrivals = _arrivals(by_rank)
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
    judged = judge(whole)
    found = waits_of_collectives(judged)
    return RankAlignment(
        ranks=waits_of_ranks(judged, known),
        collectives=found,
        unaligned=tuple(each.rank for each in ranks if each.rank not in offsets),
        incomplete=counted - found.height,
        sends=sum(
            each.kinds.count(SENDS) for own in by_rank.values() for each in own.values()
        ),
    )


def _sequences(ranks: Sequence[RankKernels]) -> dict[int, dict[str, GroupSequence]]:
    """What each rank exchanges; unnamed groups by streams, where a rank has several."""
    by_stream = any(unnamed_streams(each.kernels) > 1 for each in ranks)
    return {each.rank: sequences(each.kernels, by_stream=by_stream) for each in ranks}


def _arrivals(by_rank: Mapping[int, Mapping[str, GroupSequence]]) -> pl.DataFrame:
    """Collectives that synchronise, under their place in the first rank's order."""
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
