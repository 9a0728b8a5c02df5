from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.ingest.cleaning import clean_calls, clean_kernels, clean_ranges
from layerscope.schema import TRACE_CALLS, TRACE_KERNELS, TRACE_RANGES, Schema
from layerscope.trace import TraceLog, TraceNote

US = 1_000
MS = 1_000_000


def kernels(*rows: dict[str, Any]) -> pl.DataFrame:
    """Kernels of one stream, 5 µs each; rows say what else they are."""
    usual = {"kind": "kernel", "name": "gemm", "stream": 7, "duration_ns": 5 * US}
    return frame(TRACE_KERNELS, *({**usual, **row} for row in rows))


def frame(schema: Schema, *rows: dict[str, Any]) -> pl.DataFrame:
    """Rows in `schema`; what they leave out is null."""
    return pl.DataFrame(
        [{**dict.fromkeys(schema), **row} for row in rows], schema=schema
    )


def serial(
    count: int, *, name: str = "gemm", first_ns: int = MS
) -> list[dict[str, Any]]:
    """Kernels of one stream, one every 10 µs."""
    return [
        {"name": name, "start_ns": first_ns + 10 * US * index, "correlation": index}
        for index in range(count)
    ]


def test_kernels_are_sorted_by_start_end_and_file_order() -> None:
    """The order of the file decides where start and end are equal."""
    cleaned = clean_kernels(
        kernels(
            {"start_ns": 30, "name": "last"},
            {"start_ns": 20, "name": "long", "duration_ns": 9},
            {"start_ns": 20, "name": "first of two", "duration_ns": 5},
            {"start_ns": 20, "name": "second of two", "duration_ns": 5},
        ),
        TraceLog(),
    )
    assert cleaned["name"].to_list() == [
        "first of two",
        "second of two",
        "long",
        "last",
    ]


def test_what_is_right_is_left_as_it_is() -> None:
    """Kernels that overlap on a stream or nest in each other are no faults."""
    log = TraceLog()
    found = kernels(
        {"start_ns": 0, "duration_ns": 50 * US},
        {"start_ns": 3 * US, "duration_ns": 5 * US},
        {"start_ns": 7 * US, "duration_ns": 50 * US},
    )
    assert_frame_equal(clean_kernels(found, log), found)
    assert log.notes() == ()


def test_a_record_that_was_never_filled_in_is_dropped() -> None:
    """Start 0 and duration 0 say so where other kernels have start times."""
    log = TraceLog()
    found = kernels(*serial(2), {"start_ns": 0, "duration_ns": 0})
    assert_frame_equal(clean_kernels(found, log), found.head(2))
    what = "kernels whose times were never filled in"
    assert log.notes() == (TraceNote(kind="dropped", what=what),)


def test_kernels_that_all_start_at_zero_are_kept() -> None:
    """With no other start beside it, 0 may be right."""
    found = kernels({"start_ns": 0, "duration_ns": 0})
    assert_frame_equal(clean_kernels(found, TraceLog()), found)


def test_negative_durations_are_taken_as_zero() -> None:
    """They are doubted, and no kernel ends before it starts."""
    log = TraceLog()
    found = kernels(*serial(2), {"start_ns": 2 * MS, "duration_ns": -3 * US})
    assert clean_kernels(found, log)["duration_ns"].to_list() == [5 * US, 5 * US, 0]
    what = "kernels of negative duration, taken as 0"
    assert log.notes() == (TraceNote(kind="doubted", what=what),)


@pytest.mark.parametrize(
    ("start_ns", "duration_ns", "what"),
    [
        (None, 5, "kernels without times"),
        (5, None, "kernels without times"),
        (1 << 62, 5, "kernels at impossible times"),
        (-(1 << 62), 5, "kernels at impossible times"),
        (5, 1 << 50, "kernels at impossible times"),
        (5, -(1 << 62), "kernels at impossible times"),
    ],
)
def test_impossible_times_drop_the_kernel(
    start_ns: int | None, duration_ns: int | None, what: str
) -> None:
    """What no clock reads would overflow the sums of everything else."""
    log = TraceLog()
    found = kernels(*serial(2), {"start_ns": start_ns, "duration_ns": duration_ns})
    assert_frame_equal(clean_kernels(found, log), found.head(2))
    assert log.notes() == (TraceNote(kind="dropped", what=what),)


def test_repeated_rows_are_dropped() -> None:
    """A row equal in all columns is the same kernel, written twice."""
    log = TraceLog()
    found = kernels(*serial(3), serial(3)[1], {**serial(3)[1], "correlation": 9})
    assert clean_kernels(found, log)["correlation"].to_list() == [0, 1, 9, 2]
    what = "kernels that are there twice"
    assert log.notes() == (TraceNote(kind="dropped", what=what),)


def test_equal_kernels_of_no_duration_are_kept() -> None:
    """Old traces cut times to 1 µs: two short kernels of a graph may look the same."""
    one = {"start_ns": MS, "duration_ns": 0, "correlation": 3}
    found = kernels(one, one)
    assert_frame_equal(clean_kernels(found, TraceLog()), found)


def test_an_overflowed_duration_is_cut_to_the_usual_one() -> None:
    """1.6 s among kernels of 5 µs that start meanwhile cannot have been."""
    log = TraceLog()
    rows = serial(9)
    rows[4]["duration_ns"] = 1_600 * MS
    assert clean_kernels(kernels(*rows), log)["duration_ns"].to_list() == [5 * US] * 9
    what = "kernels of absurd duration, cut to what is usual or fits"
    assert log.notes() == (TraceNote(kind="doubted", what=what),)


def test_an_overflowed_duration_is_cut_where_the_next_kernel_starts() -> None:
    """The usual duration is too long for where this kernel stands."""
    rows = serial(9)
    rows[4]["duration_ns"] = 1_600 * MS
    rows[4]["start_ns"] += 8 * US
    cut = clean_kernels(kernels(*rows), TraceLog())
    assert cut["duration_ns"].to_list() == [*[5 * US] * 4, 2 * US, *[5 * US] * 4]


def test_an_only_kernel_of_its_name_is_cut_by_what_its_stream_runs() -> None:
    """Without others of its name, it ends where the next one starts."""
    rows = serial(9)
    rows[4] |= {"duration_ns": 1_600 * MS, "name": "attention"}
    cut = clean_kernels(kernels(*rows), TraceLog())
    assert cut["duration_ns"].to_list() == [*[5 * US] * 4, 10 * US, *[5 * US] * 4]


def test_the_last_of_a_stream_is_cut_to_the_usual_duration() -> None:
    """Nothing follows it, so only the others of its name say what is absurd."""
    rows = serial(9)
    rows[8]["duration_ns"] = 1_600 * MS
    cut = clean_kernels(kernels(*rows), TraceLog())
    assert cut["duration_ns"].to_list() == [5 * US] * 9


def test_a_kernel_that_may_wait_is_never_cut() -> None:
    """Over a second while others of its stream ran: left, and counted as doubted."""
    rows = serial(9, name="void vllm::cross_device_reduce_1stage<__half, 2>")
    rows[4]["duration_ns"] = 1_600 * MS
    found, log = kernels(*rows), TraceLog()
    assert_frame_equal(clean_kernels(found, log), found)
    what = "collectives of absurd duration, left as they are: they may have waited"
    assert log.notes() == (TraceNote(kind="doubted", what=what),)


@pytest.mark.parametrize(
    "unusual",
    [
        {"duration_ns": 5 * MS, "name": "void vllm::cross_device_reduce_1stage<half>"},
        {"duration_ns": 5 * MS, "name": "void deep_ep::intranode::dispatch<8>"},
        {"duration_ns": 5 * MS},
    ],
    ids=["custom all-reduce", "dispatch of experts", "any kernel"],
)
@pytest.mark.parametrize("by", ["correlation", "graph"])
def test_a_long_branch_of_a_graph_is_not_cut(unusual: dict[str, Any], by: str) -> None:
    """Tools put a graph's branches on one stream, where they overlap."""
    rows = [{**row, "correlation": None, by: 3} for row in serial(9)]
    rows[4] |= unusual
    found, log = kernels(*rows), TraceLog()
    assert_frame_equal(clean_kernels(found, log), found)
    assert log.notes() == ()


def test_an_overflow_within_a_graph_is_cut() -> None:
    """Over a second, and a thousand times its usual: no branch runs for so long."""
    rows = [row | {"correlation": 3} for row in serial(9)]
    rows[4]["duration_ns"] = 1_600 * MS
    cut = clean_kernels(kernels(*rows), TraceLog())
    assert cut["duration_ns"].to_list() == [5 * US] * 9


def test_a_kernel_that_waits_at_the_end_is_left() -> None:
    """A rank may be long in coming, and nothing says that it was not."""
    rows = serial(9, name="ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
    rows[8]["duration_ns"] = 1_600 * MS
    found = kernels(*rows)
    assert_frame_equal(clean_kernels(found, TraceLog()), found)


@pytest.mark.parametrize(
    "unusual",
    [
        {"duration_ns": 900 * MS, "stream": 20},
        {"duration_ns": 900 * MS, "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"},
        {"duration_ns": 900 * MS, "collective": "allreduce"},
        {"duration_ns": 400 * US},
    ],
    ids=["other stream", "waits by name", "collective", "not that long"],
)
def test_what_may_take_long_is_not_cut(unusual: dict[str, Any]) -> None:
    """Long alone is not absurd: nothing may follow, or the kernel may wait."""
    rows = serial(9)
    rows[4] |= unusual
    found = kernels(*rows)
    log = TraceLog()
    assert_frame_equal(clean_kernels(found, log), found)
    assert log.notes() == ()


@given(
    st.lists(
        st.tuples(
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.integers(-(2**63), 2**63 - 1),
            st.none() | st.integers(0, 2),
        ),
        max_size=12,
    )
)
def test_whatever_the_times_the_result_can_be_summed(
    rows: list[tuple[int | None, int | None, int | None]],
) -> None:
    """Ends and sums fit 63 bits, durations are not negative, each loss is counted."""
    log = TraceLog()
    cleaned = clean_kernels(
        kernels(
            *(
                {"start_ns": start, "duration_ns": duration, "stream": stream}
                for start, duration, stream in rows
            )
        ),
        log,
    )
    ends = [
        start + duration
        for start, duration in cleaned.select("start_ns", "duration_ns").iter_rows()
    ]
    assert all(abs(end) < 1 << 63 for end in ends)
    assert all(duration >= 0 for duration in cleaned["duration_ns"])
    dropped = sum(note.count for note in log.notes() if note.kind == "dropped")
    assert cleaned.height == len(rows) - dropped


def test_calls_are_sorted_and_possible() -> None:
    """Calls without times go, and of equal ones one stays."""
    log = TraceLog()
    call = {"name": "cudaLaunchKernel", "start_ns": 20, "duration_ns": 2}
    found = frame(
        TRACE_CALLS,
        call,
        {**call, "start_ns": 10, "duration_ns": -4},
        call,
        {**call, "start_ns": None},
    )
    expected = frame(TRACE_CALLS, {**call, "start_ns": 10, "duration_ns": 0}, call)
    assert_frame_equal(clean_calls(found, log), expected)
    assert log.notes() == (
        TraceNote(kind="dropped", what="calls without times"),
        TraceNote(kind="dropped", what="calls that are there twice"),
    )


def test_ranges_are_sorted_outermost_first_and_possible() -> None:
    """A range that ends before it starts, or never ends, is none."""
    log = TraceLog()
    step = {"kind": "step", "name": "step", "start_ns": 10, "end_ns": 20}
    found = frame(
        TRACE_RANGES,
        step,
        {**step, "end_ns": 90},
        {**step, "end_ns": 9},
        {**step, "end_ns": None},
        {**step, "start_ns": 1, "name": None},
    )
    expected = frame(
        TRACE_RANGES,
        {**step, "start_ns": 1, "name": "(no name)"},
        {**step, "end_ns": 90},
        step,
    )
    assert_frame_equal(clean_ranges(found, log), expected)
    assert log.notes() == (
        TraceNote(
            kind="dropped", what="ranges whose times are missing or wrong", count=2
        ),
        TraceNote(kind="repaired", what="ranges without a name"),
    )
