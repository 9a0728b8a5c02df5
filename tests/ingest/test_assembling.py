import polars as pl
from polars.testing import assert_frame_equal

from layerscope.ingest.assembling import (
    Rows,
    assemble,
    blocks,
    call_rows,
    kernel_name,
)
from layerscope.schema import TRACE_CALLS, TRACE_KERNELS, TRACE_RANGES
from layerscope.trace import TraceLog, TraceSource
from tests.ingest.reading import counts, frame

SOURCE = TraceSource(path="a", format="a format")


def spans(*rows: tuple[str, int | None, int | None]) -> pl.DataFrame:
    """Names, starts and ends."""
    return pl.DataFrame(rows, schema=["name", "start_ns", "end_ns"], orient="row")


def test_time_0_is_the_earliest_start_of_all() -> None:
    """Kernels, calls and ranges are on one clock, whose place in time stays known."""
    rows = Rows(
        spans(("k", 500, 700)).with_columns(kind=pl.lit("kernel")),
        spans(("c", 300, 350)),
        spans(("r", 100, 900)).with_columns(kind=pl.lit("annotation")),
    )
    trace = assemble(SOURCE, rows, TraceLog(), unix_ns=10_000)
    kernel = {"kind": "kernel", "name": "k", "start_ns": 400, "duration_ns": 200}
    call = {"name": "c", "start_ns": 200, "duration_ns": 50}
    marker = {"kind": "annotation", "name": "r", "start_ns": 0, "end_ns": 800}
    assert_frame_equal(trace.kernels, frame(TRACE_KERNELS, kernel))
    assert_frame_equal(trace.calls, frame(TRACE_CALLS, call))
    assert_frame_equal(trace.ranges, frame(TRACE_RANGES, marker))
    assert (trace.origin_ns, trace.notes) == (10_100, ())


def test_times_beyond_any_clock_are_dropped() -> None:
    """The difference of the largest and the smallest number would not fit."""
    kernels = spans(
        ("a", -(2**63), 2**63 - 1), ("b", 5, 6), ("c", None, 6), ("d", 2**62, 2**62)
    ).with_columns(kind=pl.lit("kernel"))
    trace = assemble(SOURCE, Rows(kernels), TraceLog())
    assert trace.kernels["name"].to_list() == ["b"]
    assert counts(trace.notes) == {
        "kernels without times": 1,
        "kernels at impossible times": 2,
    }


def test_a_trace_without_kernels_says_what_it_has() -> None:
    """The note is the first thing that reports print."""
    calls = spans(("c", 1, 2))
    markers = spans(("r", 1, 2)).with_columns(kind=pl.lit("annotation"))
    said = [
        assemble(SOURCE, rows, TraceLog()).notes[0].what
        for rows in (Rows(), Rows(calls=calls), Rows(ranges=markers))
    ]
    assert said == [
        "of kernels, calls and markers there are none",
        "of kernels there are none, only calls that launched them or others",
        "of kernels there are none, only markers",
    ]


def test_the_last_block_may_be_part_of_one() -> None:
    """Work-items that fill no block still need it; without a block none is known."""
    extents = pl.DataFrame(
        {"items": [100, 128, 0, 5, None], "block": [64, 64, 64, 0, 64]}
    )
    found = extents.select(blocks(pl.col("items"), pl.col("block")))
    assert found.to_series().to_list() == [2, 2, 0, None, None]


def test_endings_of_descriptors_are_cut() -> None:
    """And nothing else that looks like one."""
    names = pl.DataFrame({"name": ["a.kd", "a [clone .kd]", "a.kd.b", None]})
    assert names.select(kernel_name())["name"].to_list() == ["a", "a", "a.kd.b", None]


def test_calls_of_hsa_are_kept_where_they_launched() -> None:
    """HIP makes thousands that did not."""
    calls = pl.DataFrame(
        {
            "name": ["hip", "hsa 1", "hsa 2", "hsa 3"],
            "correlation": [None, 7, 8, None],
            "is_hsa": [False, True, True, True],
        }
    )
    kernels = pl.DataFrame({"correlation": [7, 9, None]})
    assert call_rows(calls, kernels)["name"].to_list() == ["hip", "hsa 1"]
    assert call_rows(calls, pl.DataFrame())["name"].to_list() == ["hip"]
