"""Runs that were made of the trace on paper."""

from pathlib import Path

import polars as pl

from layerscope.ingest.saving import run_of, save
from layerscope.run import Run
from tests.ingest import paper_trace


def run(path: str = "traced", *, scale: int = 1, **names: str) -> Run:
    """The run of the trace on paper, in memory.

    Args:
        path: what it is called.
        scale: what durations are multiplied with.
        names: other names for kernels, by theirs.
    """
    kernels = paper_trace.kernels(scale=scale, names=names)
    return run_of([paper_trace.swept_trace(kernels)], path)


def write(path: Path, *, scale: int = 1, **names: str) -> Path:
    """The same as a folder at `path`."""
    kernels = paper_trace.kernels(scale=scale, names=names)
    save([paper_trace.swept_trace(kernels)], path)
    return path


def decode_only(path: str = "decode-only") -> Run:
    """A run of one arm."""
    kernels = paper_trace.kernels().filter(
        pl.col("step_kind").fill_null("decode") == "decode"
    )
    return run_of([paper_trace.swept_trace(kernels)], path)
