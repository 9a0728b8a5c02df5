import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

from layerscope.render.perfetto.packets import Numbers, repeat

NUMBERS = st.integers(0, 2**63 - 1)
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=1, max_size=8)


def build(numbers: Numbers) -> bytes:
    """One packet: a time, an argument, and a flow in fields of two kinds."""
    trace = Trace()
    packet = trace.packet.add(timestamp=numbers["at"])
    event = packet.track_event
    event.debug_annotations.add(name_iid=1, int_value=numbers["value"])
    event.debug_annotations.add(name_iid=2, int_value=numbers["value"])
    event.flow_ids_old.append(numbers["flow"])
    event.flow_ids.append(numbers["fixed"])
    return bytes(trace.SerializeToString())


@given(ROWS)
def test_rows_are_what_the_library_would_write(rows: list[tuple[int, ...]]) -> None:
    """Parsed, each row is the packet of its numbers, and rows are in order."""
    names = ("at", "value", "flow")
    columns = {
        name: np.array([row[place] for row in rows], dtype=np.int64)
        for place, name in enumerate(names)
    }
    columns["fixed"] = columns["flow"]
    made = repeat(build, columns, frozenset({"fixed"}))
    expected = Trace()
    for row in rows:
        numbers = dict(zip(names, row, strict=True)) | {"fixed": row[2]}
        expected.MergeFromString(build(numbers))
    assert Trace.FromString(made.tobytes()) == expected


def test_a_number_that_is_the_same_everywhere_is_written_once_for_all() -> None:
    """Its bytes are those of the library, not padded to any width."""
    column = pl.Series([5, 5]).to_numpy()
    columns = dict.fromkeys(("at", "value", "flow", "fixed"), column)
    made = repeat(build, columns)
    assert made.tobytes() == 2 * build(dict.fromkeys(columns, 5))


@pytest.mark.parametrize("values", [[-1, 5], [-1, -1]])
def test_no_number_is_negative(values: list[int]) -> None:
    """A time before the trace began is refused, not written as one long after."""
    columns = dict.fromkeys(("at", "value", "flow", "fixed"), np.array([1, 2]))
    with pytest.raises(ValueError, match="at has -1; numbers of"):
        repeat(build, columns | {"at": np.array(values)})
