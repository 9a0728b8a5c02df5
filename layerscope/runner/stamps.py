"""Reading when the blocks of kernels worked, from arms that note it."""

from collections.abc import Mapping
from typing import Final

import polars as pl
from torch import Tensor

from layerscope.errors import describe
from layerscope.runner.bench import Bench
from layerscope.schema import STAMPS, empty

READINGS: Final = 8
"""Replays of an arm whose last pass is looked at, each on a step of its own."""

_REPLAYS: Final = 2
"""In a row before each look: after the first the device is as busy as in rounds."""

TIMES: Final = ("begun_ns", "waited_ns", "triggered_ns", "ended_ns")
"""Columns of `schema.STAMPS`, in the order of `plugin.Stamping.read_stamps`."""


def note_stamps(bench: Bench) -> None:
    """Replay every stamped arm, and add what its blocks noted to the run.

    An arm whose stamps cannot be read is a warning: all else of the run is whole.

    Args:
        bench: with replays captured and warm.
    """
    read = bench.read_stamps
    arms = [arm.name for arm in bench.study.stamp_arms]
    if read is None or not arms:
        return
    bench.progress.phase("reading stamps of blocks", READINGS)
    frames, failed = [empty(STAMPS)], dict[str, str]()
    for reading in range(READINGS):
        bench.restart(hold=_REPLAYS * len(arms))
        for arm in arms:
            for _ in range(_REPLAYS):
                bench.longest(arm).launch()
                bench.next_step()
            bench.player.wait()
            try:
                frames.append(stamp_rows(arm, reading, read(arm)))
            except Exception as error:  # noqa: BLE001 (foreign code may raise anything)
                failed[arm] = f"no stamps of {arm}: {describe(error)}"
        bench.progress.advance()
    bench.writer.header.warnings += failed.values()
    bench.writer.set_stamps(pl.concat(frames))


def stamp_rows(arm: str, reading: int, stamps: Mapping[str, Tensor]) -> pl.DataFrame:
    """Rows of `schema.STAMPS`: what one pass of an arm noted.

    Args:
        arm: whose pass.
        reading: its number.
        stamps: as `plugin.Stamping.read_stamps` gives them.
    """
    # 0 is what was not noted
    times = [pl.when(pl.col(name) > 0).then(pl.col(name)).alias(name) for name in TIMES]
    block = pl.int_range(pl.len(), dtype=pl.Int64).alias("block")
    frames = [
        pl.DataFrame(found.numpy(), schema=TIMES).select(
            pl.lit(arm).alias("arm"),
            pl.lit(reading, dtype=pl.Int64).alias("reading"),
            pl.lit(role).alias("role"),
            block,
            *times,
        )
        for role, found in stamps.items()
    ]
    rows = pl.concat([empty(STAMPS), *frames])
    return rows.with_columns(pl.col(TIMES) - pl.col("begun_ns").min())
