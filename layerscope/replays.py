"""A run on disk whose kernels are read a few replays at a time.

`run.load` holds all kernels of a run in memory; what goes through them once need not.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import polars as pl

from layerscope.parquet import reading
from layerscope.passes import PASS_KEYS, REPLAY_KEYS, first_pass
from layerscope.run import (
    EDGES_FILE,
    HEADER_FILE,
    KERNELS_FILE,
    SAMPLES_FILE,
    Run,
    load,
)
from layerscope.run_header import read_header
from layerscope.schema import EDGES, KERNELS, SAMPLES, Schema, conform, empty

_ROWS: Final = 32 << 10  # more take more memory, fewer more time


def load_without_kernels(path: Path | str) -> Run:
    """Read the run in the folder `path`, but for its kernels and its draft.

    Raises:
        InputError: there is no such folder, or it is not a run.
        RecordError: a file is damaged, misses columns, or is of a newer format.
    """
    folder = Path(path)
    if not (folder / HEADER_FILE).is_file():
        return load(folder)  # which says why it cannot
    edges = folder / EDGES_FILE
    return Run(
        header=read_header(folder / HEADER_FILE),
        samples=_read(folder / SAMPLES_FILE, SAMPLES),
        kernels=empty(KERNELS),
        path=folder,
        edges=_read(edges, EDGES) if edges.exists() else empty(EDGES),
    )


def read_replays(path: Path | str, rows: int = _ROWS) -> Iterator[pl.DataFrame]:
    """The kernels of the run in the folder `path`, a few whole replays at a time.

    Args:
        path: the folder of a run.
        rows: how many to read at once; a longer replay is given whole all the same.

    Yields:
        Parts of `schema.KERNELS`, in the order of the file, none of them empty.

    Raises:
        RecordError: the file is damaged, or misses columns.
    """
    file = Path(path) / KERNELS_FILE
    begun = empty(KERNELS)  # a replay whose end has not been read
    offset = 0
    while True:
        part = _collect(pl.scan_parquet(file).slice(offset, rows), file)
        part = conform(part, KERNELS, what=str(file))
        if part.is_empty():
            break
        offset += part.height
        joined = pl.concat([begun, part])
        replay = joined.select(pl.struct(REPLAY_KEYS).rle_id()).to_series()
        height = replay.search_sorted(replay[-1])  # of all but the last replay
        begun = joined.slice(height)
        if height:
            yield joined.head(height)
    if begun.height:
        yield begun


def read_spans(path: Path | str) -> pl.DataFrame:
    """When the second pass of every replay in the folder `path` begins, and its end.

    Returns:
        The keys of replays, and Int64 begin_ns, the latest end of the first pass, after
        which the first begins that shares count (0, where there is no pass), and
        end_ns, the latest end of all, both since the replay's first start; sorted.

    Raises:
        RecordError: the file is damaged, or misses columns.
    """
    file = Path(path) / KERNELS_FILE
    index, end = pl.col("pass_index"), pl.col("end_ns")
    ends = pl.col("pass_start_ns") + pl.col("start_ns") + pl.col("duration_ns")
    passes = pl.scan_parquet(file).group_by(PASS_KEYS).agg(ends.max().alias("end_ns"))
    return (
        _collect(passes, file)
        .group_by(REPLAY_KEYS)
        .agg(
            begin_ns=end.filter(index == first_pass()).max().fill_null(0),
            end_ns=end.max(),
        )
        .sort(REPLAY_KEYS)
    )


def _read(path: Path, schema: Schema) -> pl.DataFrame:
    return conform(_collect(pl.scan_parquet(path), path), schema, what=str(path))


def _collect(frame: pl.LazyFrame, path: Path) -> pl.DataFrame:
    with reading(path):
        return frame.collect(engine="streaming")
