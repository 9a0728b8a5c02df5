"""Frames of a run as Parquet: small, and read with one line on why they cannot be."""

from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

import polars as pl

from layerscope.errors import RecordError
from layerscope.schema import Schema, conform, empty

_ROW_GROUP: Final = 1 << 18  # large enough for patterns over replays to be found


def as_parquet(frame: pl.DataFrame) -> bytes:
    """`frame` as Parquet, small enough to keep thousands of passes as a fixture."""
    buffer = BytesIO()
    frame.write_parquet(
        buffer,
        compression="zstd",
        compression_level=9,
        statistics=False,
        row_group_size=_ROW_GROUP,
    )
    return buffer.getvalue()


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Say in one line why the frame in the file `path` cannot be read.

    Raises:
        RecordError: it is missing, or damaged.
    """
    try:
        yield
    except FileNotFoundError as error:
        msg = f"{path} is missing; the run is not whole"
        raise RecordError(msg) from error
    except (OSError, pl.exceptions.PolarsError) as error:
        cause = str(error).splitlines()[0]
        msg = f"{path} is damaged ({cause}); record the run again"
        raise RecordError(msg) from error


def read_frame(path: Path, schema: Schema) -> pl.DataFrame:
    """The rows in the file `path`, of `schema`.

    Raises:
        RecordError: it is missing, damaged, or misses columns.
    """
    with reading(path):
        frame = pl.read_parquet(BytesIO(path.read_bytes()))
    return conform(frame, schema, what=str(path))


def read_if_there(path: Path, schema: Schema) -> pl.DataFrame:
    """As `read_frame`; no rows where the run was written without the file."""
    return read_frame(path, schema) if path.exists() else empty(schema)
