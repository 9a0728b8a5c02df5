from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.errors import InputError, RecordError
from layerscope.replays import load_without_kernels, read_replays, read_spans
from layerscope.run import EDGES_FILE, KERNELS_FILE, load
from layerscope.schema import EDGES, KERNELS, empty
from tests.ingest import paper_runs
from tests.perfetto import runs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A hand-made run of six replays."""
    return runs.write(tmp_path / "run")


@pytest.mark.parametrize("rows", [1, 7, 20, 21, 96, 1_000])
def test_parts_are_whole_replays(folder: Path, rows: int) -> None:
    """Whatever is read at once, no replay is divided, and all add up to the file."""
    parts = list(read_replays(folder, rows))
    assert_frame_equal(pl.concat(parts), load(folder).kernels)
    keys = ["arm", "experiment", "capture", "round", "replay"]
    replays = [part.select(keys).unique() for part in parts]
    assert pl.concat(replays).is_duplicated().sum() == 0


def test_no_kernels_are_no_parts(tmp_path: Path) -> None:
    """A run in which nothing was recorded gives nothing."""
    folder = runs.write(tmp_path / "run", kernels=empty(KERNELS))
    assert list(read_replays(folder)) == []
    assert read_spans(folder).is_empty()


def test_spans_of_replays(folder: Path) -> None:
    """The second pass begins where what comes before it has ended."""
    found = read_spans(folder).select(
        "arm", "experiment", "replay", "begin_ns", "end_ns"
    )
    assert found.rows() == [
        ("fused", "captured", 0, 940, 3_940),
        ("fused", "captured", 1, 940, 3_940),
        ("fused", "serial", 0, 950, 3_950),
        ("fused", "serial", 1, 950, 3_950),
        ("reference", "captured", 0, 1_000, 4_000),
        ("reference", "captured", 1, 1_000, 4_000),
    ]


def test_everything_else_is_loaded(folder: Path) -> None:
    """Header, samples and edges are those of `load`; kernels are not there."""
    found, expected = load_without_kernels(folder), load(folder)
    assert found.header == expected.header
    assert_frame_equal(found.samples, expected.samples)
    assert_frame_equal(found.edges, expected.edges)
    assert found.kernels.is_empty()


def test_runs_of_old_formats_have_no_edges(folder: Path) -> None:
    """A folder without a table of edges is no error."""
    (folder / EDGES_FILE).unlink()
    assert_frame_equal(load_without_kernels(folder).edges, empty(EDGES))


def test_what_is_no_run(tmp_path: Path) -> None:
    """The error is that of `load`."""
    with pytest.raises(InputError, match="no run at"):
        load_without_kernels(tmp_path / "none")


def test_damaged_and_missing_tables(folder: Path) -> None:
    """Both are errors that name the file, whoever reads it."""
    path = folder / KERNELS_FILE
    path.write_bytes(path.read_bytes()[:1_000])
    with pytest.raises(RecordError, match="damaged"):
        read_spans(folder)
    with pytest.raises(RecordError, match="damaged"):
        list(read_replays(folder))
    path.unlink()
    with pytest.raises(RecordError, match="is missing; the run is not whole"):
        list(read_replays(folder))


def test_spans_of_a_trace(tmp_path: Path) -> None:
    """What comes after the last layer is not before the second."""
    found = read_spans(paper_runs.write(tmp_path / "run"))
    assert found.select("arm", "replay", "begin_ns", "end_ns").rows() == [
        ("decode", 0, 38_000, 148_000),
        ("decode", 2, 38_000, 148_000),
        ("prefill", 1, 353_000, 1_059_000),
    ]
