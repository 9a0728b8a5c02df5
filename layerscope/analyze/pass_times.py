"""From the durations of replays to the time of a pass."""

from typing import Final

import polars as pl

from layerscope.analyze.bootstrap import estimate
from layerscope.schema import INT, TEXT, Schema

_ROUND: Final = ("phase", "experiment", "capture", "round")
_ARM: Final = ("phase", "arm", "experiment")
_CELL: Final = (*_ARM, "capture", "round")

_LINEARITY: Final[Schema] = {
    **dict.fromkeys(_ARM, TEXT),
    "deviation_ns": pl.Float64(),
    "low_ns": pl.Float64(),
    "high_ns": pl.Float64(),
    "rounds": INT,
}


def pass_times(samples: pl.DataFrame) -> pl.DataFrame:
    """The time of a pass in every complete round.

    With replays of several lengths in a round, it is the least-squares slope of
    duration over passes, in which the cost of launching a replay cancels; with one
    length, it is duration over passes. Incomplete rounds (see `incomplete_rounds`)
    are left out.

    Args:
        samples: `schema.SAMPLES`.

    Returns:
        Columns phase, arm, experiment (String), capture, round (Int64) and pass_ns
        (Float64), sorted by all but the last.
    """
    x, y, n = pl.col("passes"), pl.col("duration_ns"), pl.len().cast(pl.Int64)
    # integers up to the one division, so that the order of rows cannot matter
    slope = (n * (x * y).sum() - x.sum() * y.sum()) / (n * (x * x).sum() - x.sum() ** 2)
    mean = y.sum() / x.sum()
    return (
        _complete(samples)
        .group_by(_CELL)
        .agg(pass_ns=pl.when(x.n_unique() > 1).then(slope).otherwise(mean))
        .sort(_CELL)
    )


def incomplete_rounds(samples: pl.DataFrame) -> pl.DataFrame:
    """The rounds in which an arm lacks a replay, as the last one of a stopped run.

    A round must have every arm of its (phase, experiment, capture), and of each every
    length of its (phase, experiment).

    Args:
        samples: `schema.SAMPLES`.

    Returns:
        Columns phase, experiment, capture, round, sorted by them.
    """
    lengths = pl.col("passes").n_unique().over("phase", "experiment")
    arms = pl.col("arm").n_unique().over("phase", "experiment", "capture")
    return (
        samples.with_columns(wanted=lengths * arms)
        .group_by(_ROUND)
        .agg(
            found=pl.struct("arm", "passes").n_unique(),
            wanted=pl.col("wanted").first(),
        )
        .filter(pl.col("found") < pl.col("wanted"))
        .select(_ROUND)
        .sort(_ROUND)
    )


def linearity(samples: pl.DataFrame) -> pl.DataFrame:
    """How far the middle of three lengths lies from the line through the outer ones.

    The deviation is the slope from the shortest to the middle length minus that from
    the shortest to the longest: what a pass appears to cost more in short replays.

    Args:
        samples: `schema.SAMPLES`.

    Returns:
        Columns phase, arm, experiment (String); deviation_ns, low_ns, high_ns (Float64,
        ns a pass, with the 95 % interval); rounds (Int64). No row for an arm with fewer
        than three lengths.
    """
    x, y = pl.col("passes"), pl.col("duration_ns")
    middle = pl.len() // 2
    to_middle = (y.get(middle) - y.first()) / (x.get(middle) - x.first())
    to_end = (y.last() - y.first()) / (x.last() - x.first())
    deviations = (
        _complete(samples)
        .group_by(*_CELL, "passes")
        .agg(y.mean())
        .sort("passes")
        .group_by(_CELL, maintain_order=True)
        .agg(lengths=pl.len(), deviation_ns=to_middle - to_end)
        .filter(pl.col("lengths") > 2)  # noqa: PLR2004 (a line has two ends)
    )
    rows = []
    for names, part in deviations.partition_by(_ARM, as_dict=True).items():
        found = estimate(part, "deviation_ns")
        rows.append((*names, found.value, found.low, found.high, found.samples))
    return pl.DataFrame(rows, schema=_LINEARITY, orient="row").sort(_ARM)


def _complete(samples: pl.DataFrame) -> pl.DataFrame:
    return samples.join(incomplete_rounds(samples), on=_ROUND, how="anti")
