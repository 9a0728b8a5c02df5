"""Every real trace is read, with the figures that it has, or refused for its reason."""

import re
from pathlib import Path

import polars as pl
import pytest

from layerscope.analyze.intervals import sweep
from layerscope.errors import InputError
from layerscope.ingest.read import ReadOptions, read_trace, read_traces
from layerscope.trace import Trace
from tests.ingest.expected_traces import READ, REFUSED, Figures
from tests.ingest.real_traces import real_trace

_MS = 1_000_000
_FRESH = ReadOptions(cache=False)


def figures(trace: Trace) -> dict[int | None, Figures]:
    """By device."""
    kernels = trace.kernels.filter(pl.col("kind") == "kernel").select(
        "device",
        "stream",
        "start_ns",
        "duration_ns",
        end_ns=pl.col("start_ns") + pl.col("duration_ns"),
        node=pl.int_range(pl.len()),
    )
    swept = sweep(kernels, ["device"]).group_by("device", maintain_order=True)
    totals = swept.agg(
        pl.len(),
        pl.col("stream").n_unique(),
        pl.col("end_ns").max() - pl.col("start_ns").min(),
        pl.col("duration_ns").sum(),
        pl.col("exclusive_ns").sum(),
    )
    return {
        device: Figures(count, streams, *(round(each / _MS, 3) for each in times_ns))
        for device, count, streams, *times_ns in totals.iter_rows()
    }


def folder() -> Path:
    """Where the real traces are."""
    return real_trace("MANIFEST.tsv").parent


@pytest.mark.parametrize("name", [*READ, *REFUSED])
def test_every_trace_is_read_or_refused(name: str) -> None:
    """Kernels, streams and times are those of the file, or the right message comes."""
    path = real_trace(name)
    if name in READ:
        assert figures(read_trace(path, _FRESH)) == READ[name]
    else:
        with pytest.raises(InputError, match=re.escape(REFUSED[name])) as caught:
            read_trace(path, _FRESH)
        assert str(caught.value).startswith(str(path))
        assert "\n" not in str(caught.value)


def test_no_trace_is_left_out() -> None:
    """Every file beside the manifest is in the tables of what is expected."""
    files = (path for path in folder().rglob("*") if path.is_file())
    names = {str(path.relative_to(folder())) for path in files} - {"MANIFEST.tsv"}
    assert names == {*READ, *REFUSED}


def test_a_folder_of_rank_files_is_one_input() -> None:
    """Eight ranks of one job, in their order."""
    reading = read_traces([real_trace("param/dlrm_kineto")], options=_FRESH)
    assert [trace.rank for trace in reading.traces] == list(range(8))
    assert {trace.ranks for trace in reading.traces} == {8}
    assert reading.skipped == ()
