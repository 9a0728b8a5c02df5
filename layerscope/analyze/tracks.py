"""Rows for intervals that overlap: no two of a row do, and no time is changed."""

from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

_Times: TypeAlias = npt.NDArray[np.int64]
_Flags: TypeAlias = npt.NDArray[np.bool_]

_ORDER: Final = ("start_ns", "end_ns", "node")


def with_tracks(intervals: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """Give every interval a track of its line, on which it overlaps with no other.

    Intervals are taken in the order (start, end, node), each to the first track that is
    free at its start. So a line whose intervals follow each other has the track 0
    alone, and no line has more tracks than intervals that ever run at the same time,
    but that those of no length take a place too.

    Args:
        intervals: Int64 columns ``start_ns``, ``end_ns`` and ``node``, the columns
            named in `by`, and any others.
        by: columns, at least one, whose values together name a line.

    Returns:
        `intervals`, sorted by (`by`, start, end, node), with an Int64 column ``track``.
    """
    ordered = intervals.sort(*by, *_ORDER)
    if ordered.is_empty():
        return ordered.with_columns(track=pl.lit(0, pl.Int64))
    line = ordered.select(pl.struct(by).rle_id().cast(pl.Int64)).to_series().to_numpy()
    starts, ends = ordered["start_ns"].to_numpy(), ordered["end_ns"].to_numpy()
    # Line after line, so that all of them are one.
    shift = line * (max(ends.max(), starts.max()) - starts.min() + 1)
    starts, ends = starts + shift, ends + shift
    tracks = np.zeros(ordered.height, dtype=np.int64)
    rest = np.arange(ordered.height)
    while rest.size:
        is_taken = _taken(starts[rest], ends[rest])
        rest = rest[~is_taken]
        tracks[rest] += 1
    return ordered.with_columns(track=pl.Series(tracks, dtype=pl.Int64))


def _taken(starts: _Times, ends: _Times) -> _Flags:
    """Which intervals a track takes: the first, and those that follow it there.

    Each is followed by the first that starts once it has ended. As starts are in order,
    who that is is found for all at once, and then who comes after 1, 2, 4, 8, … steps.
    """
    count = starts.size
    following = np.maximum(np.searchsorted(starts, ends), np.arange(1, count + 1))
    following = np.append(following, count)  # the last is followed by nothing
    is_taken = np.zeros(count + 1, dtype=np.bool_)
    is_taken[0] = True
    while following[0] < count:
        is_taken[following[is_taken]] = True
        following = following[following]
    return is_taken[:count]
