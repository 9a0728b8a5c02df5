import datetime as dt
import re
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.errors import RecordError
from layerscope.schema import (
    EDGES,
    KERNELS,
    NULLABLE,
    PASS_SHARES,
    PLACED_KERNELS,
    RANGES,
    SAMPLES,
    STAMPS,
    TRACE_CALLS,
    TRACE_KERNELS,
    TRACE_RANGES,
    Schema,
    conform,
    empty,
)

SCHEMAS = (
    *(KERNELS, SAMPLES, EDGES, STAMPS, RANGES, PASS_SHARES),
    *(TRACE_KERNELS, TRACE_CALLS, TRACE_RANGES, PLACED_KERNELS),
)
SMALL: Schema = {"name": pl.String(), "start_ns": pl.Int64(), "role": pl.String()}


def frame(**columns: Any) -> pl.DataFrame:  # noqa: ANN401 (any column)
    """One row in `SMALL`, with `columns` in place of its own."""
    values = {"name": ["gemm"], "start_ns": [7], "role": ["gate"]} | columns
    return pl.DataFrame(values)


@pytest.mark.parametrize("schema", SCHEMAS)
def test_empty_frames_conform(schema: Schema) -> None:
    """A frame without rows is in the schema it was made from."""
    assert_frame_equal(conform(empty(schema), schema, what="frame"), empty(schema))


@pytest.mark.parametrize("schema", SCHEMAS)
def test_names_carry_units(schema: Schema) -> None:
    """No column of time has another unit than nanoseconds."""
    assert [name for name in schema if re.search(r"_(us|ms|s)$", name)] == []


def test_nullable_columns_exist() -> None:
    """Every column that may lack values is one of a schema."""
    assert {name for schema in SCHEMAS for name in schema} >= NULLABLE


def test_columns_are_put_in_order() -> None:
    """Columns may come in any order and leave in that of the schema."""
    shuffled = frame().select("role", "start_ns", "name")
    assert_frame_equal(conform(shuffled, SMALL, what="frame"), frame())


def test_narrow_types_are_widened() -> None:
    """Integers of any width, categories, and columns of nulls are taken."""
    narrow = frame(start_ns=pl.Series([7], dtype=pl.UInt8), role=[None]).with_columns(
        pl.col("name").cast(pl.Categorical)
    )
    expected = frame(role=pl.Series([None], dtype=pl.String))
    assert_frame_equal(conform(narrow, SMALL, what="frame"), expected)


@given(st.integers(-(2**53), 2**53))
def test_whole_floats_are_exact(start_ns: int) -> None:
    """A float that is a whole number becomes that number."""
    found = conform(frame(start_ns=[float(start_ns)]), SMALL, what="frame")
    assert_frame_equal(found, frame(start_ns=[start_ns]))


@pytest.mark.parametrize(
    "value", [0.5, -7.25, float("nan"), float("inf"), float(2**54), 1e300]
)
def test_other_floats_are_refused(value: float) -> None:
    """A float that is no whole number, or too large to be sure, is an error."""
    with pytest.raises(RecordError, match="start_ns has values that are not whole"):
        conform(frame(start_ns=[7.0, value], name="a", role="b"), SMALL, what="frame")


@pytest.mark.parametrize(
    ("column", "fault"),
    [
        (pl.Series(["7"]), "start_ns is String, not whole numbers"),
        (pl.Series([True]), "start_ns is Boolean, not whole numbers"),
        (pl.Series([dt.date(2026, 1, 1)]), "start_ns is Date, not whole numbers"),
        (pl.Series([2**63], dtype=pl.UInt64), "start_ns exceeds Int64"),
        (pl.Series([None], dtype=pl.Int64), "start_ns lacks 1 of 1 values"),
        (pl.Series([None]), "start_ns lacks 1 of 1 values"),
    ],
)
def test_unfit_numbers_are_refused(column: pl.Series, fault: str) -> None:
    """Text, truth values, dates, too large numbers and missing ones are errors."""
    with pytest.raises(RecordError, match=f"^kernels: {fault}; "):
        conform(frame(start_ns=column), SMALL, what="kernels")


def test_numbers_are_no_text() -> None:
    """A number does not become a name."""
    with pytest.raises(RecordError, match="name is Int64, not text"):
        conform(frame(name=[3]), SMALL, what="frame")


def test_every_fault_is_named_at_once() -> None:
    """One message names every column that does not fit."""
    unfit = frame(name=[3], start_ns=[0.5])
    with pytest.raises(RecordError, match=r"name is .*, start_ns has .*; damaged"):
        conform(unfit, SMALL, what="frame")


def test_missing_and_unknown_columns_are_refused() -> None:
    """The message names the frame, what it lacks, and what it has too much."""
    other = frame().rename({"start_ns": "start_us", "role": "task"})
    message = (
        "samples.parquet: lacks start_ns, role and has unknown start_us, task; "
        "written by another version?"
    )
    with pytest.raises(RecordError, match=f"^{re.escape(message)}$"):
        conform(other, SMALL, what="samples.parquet")


def test_the_input_is_not_changed() -> None:
    """`conform` makes a new frame."""
    given_frame = frame(start_ns=[7.0])
    conform(given_frame, SMALL, what="frame")
    assert given_frame.schema["start_ns"] == pl.Float64


@pytest.mark.parametrize("name", ["step", "position"])
def test_what_a_trace_may_lack_a_sample_has(name: str) -> None:
    """Both call a column so: outside of steps there is none, a replay has one."""
    row: dict[str, Any] = dict.fromkeys(SAMPLES, 0)
    row |= {"phase": "anchor", "arm": "a", "experiment": "captured", name: None}
    with pytest.raises(RecordError, match=f"{name} lacks 1 of 1 values"):
        conform(pl.DataFrame([row], schema=SAMPLES), SAMPLES, what="samples")
    placed: dict[str, Any] = dict.fromkeys(PLACED_KERNELS, 0)
    placed |= {"kind": "kernel", "name": "a"}
    placed |= dict.fromkeys(("collective", "group", "step_kind", "variant", "role"))
    placed |= {"region": "moe", "assigned_by": "nothing", name: None}
    found = pl.DataFrame([placed], schema=PLACED_KERNELS)
    assert_frame_equal(conform(found, PLACED_KERNELS, what="kernels"), found)
