"""What names a replay and a pass in frames, and which passes count.

A replay begins and ends beside something that is not a layer. So its first and its last
pass do not count, and what belongs to no pass (index -1) does not either: it comes
before the first, or, in a run made of a trace, after the last.
"""

from typing import Final

import polars as pl

REPLAY_KEYS: Final = ("arm", "experiment", "capture", "round", "replay")
"""The columns that name a replay."""

PASS_KEYS: Final = (*REPLAY_KEYS, "pass_index")
"""The columns that name a pass."""

GRAPH_PASS_KEYS: Final = PASS_KEYS[2:]
"""The columns that name a pass of one (arm, experiment)."""


def first_pass() -> pl.Expr:
    """The index of a replay's first pass; null where nothing belongs to a pass."""
    index = pl.col("pass_index")
    return index.filter(index >= 0).min()


def used_passes(rows: pl.DataFrame) -> pl.DataFrame:
    """The rows of the passes that count.

    Args:
        rows: of whole replays, those of a replay beside each other; `PASS_KEYS` and any
            other columns.
    """
    index, line = pl.col("pass_index"), pl.struct(REPLAY_KEYS).rle_id()
    return (
        rows.with_columns(_line=line)
        .filter(
            index > first_pass().over("_line"),
            index < index.max().over("_line"),
        )
        .drop("_line")
    )
