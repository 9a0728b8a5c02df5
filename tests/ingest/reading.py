"""How tests of readers read one file, and whole frames of few known values."""

from pathlib import Path
from typing import Any

import polars as pl

from layerscope.ingest import perfetto_trace, rocprof_csv, rocprof_json
from layerscope.ingest.content import Content, contents_of
from layerscope.progress import SilentProgress
from layerscope.schema import Schema
from layerscope.trace import Trace, TraceLog, TraceNote

_READERS = {
    ".csv": rocprof_csv.read,
    ".json": rocprof_json.read,
    ".pftrace": perfetto_trace.read,
}


def read(path: Path) -> Trace:
    """The trace in a file, by the reader for its ending."""
    (content,) = contents_of(path)
    return read_content(content)


def read_content(content: Content) -> Trace:
    """The trace in a file, which may lie in an archive."""
    name = (content.member or content.path.name).removesuffix(".gz")
    return _READERS[Path(name).suffix](content, TraceLog(), SilentProgress())


def frame(schema: Schema, *rows: dict[str, Any]) -> pl.DataFrame:
    """Rows in `schema`; what they leave out is null."""
    return pl.DataFrame(
        [{**dict.fromkeys(schema), **row} for row in rows], schema=schema
    )


def counts(notes: tuple[TraceNote, ...]) -> dict[str, int]:
    """How often each thing was noted."""
    return {note.what: note.count for note in notes}
