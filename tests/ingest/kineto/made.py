"""Events of a Chrome trace made by hand, and what reading them gives."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from layerscope.ingest import kineto
from layerscope.ingest.content import contents_of
from layerscope.progress import SilentProgress
from layerscope.schema import Schema
from layerscope.trace import Trace, TraceLog
from tests.ingest.packed import written

Made = dict[str, Any]


def span(category: str, name: str, start: float, duration: float, **args: Any) -> Made:  # noqa: ANN401 (JSON)
    """A complete event of the host, times in µs; `args` by their names in the file."""
    event = {"ph": "X", "cat": category, "name": name, "pid": 9, "tid": 11}
    return {**event, "ts": start, "dur": duration, "args": args}


def kernel(name: str, start: float, duration: float, **args: Any) -> Made:  # noqa: ANN401 (JSON)
    """A kernel on stream 7 of device 0."""
    event = span("kernel", name, start, duration, **args)
    return {**event, "pid": 0, "tid": 7}


def launch(correlation: int, start: float, name: str = "cudaLaunchKernel") -> Made:
    """The call that launched what carries `correlation`."""
    return span("cuda_runtime", name, start, 0.5, correlation=correlation)


def document(events: Sequence[Made], **header: Any) -> bytes:  # noqa: ANN401 (JSON)
    """A file of `events`, as one JSON object."""
    return json.dumps({**header, "traceEvents": events}).encode()


def read(folder: Path, data: bytes) -> Trace:
    """The trace in a file of `data`."""
    (content,) = contents_of(written(folder / "trace.json", data))
    return kineto.read(content, TraceLog(), SilentProgress())


def notes(trace: Trace) -> dict[str, int]:
    """How often what was noted."""
    return {note.what: note.count for note in trace.notes}


def rows(schema: Schema, *given: Mapping[str, Any]) -> pl.DataFrame:
    """A frame of `schema`; what a row does not give is null."""
    empty = dict.fromkeys(schema)
    return pl.DataFrame([{**empty, **row} for row in given], schema=schema)
