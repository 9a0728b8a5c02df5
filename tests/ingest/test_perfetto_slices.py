import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.ingest.perfetto_slices import MARKS, ends_of
from layerscope.schema import INT
from layerscope.trace import TraceLog
from tests.ingest.reading import counts

STRAY = "ends of slices that never began"


def ends(
    *marks: tuple[int, int, int, int | None],
) -> tuple[list[tuple[int, int | None]], int]:
    """Number and end of the slices that `marks` open, and how many ends were stray."""
    log = TraceLog()
    found = ends_of(pl.DataFrame(list(marks), schema=MARKS, orient="row"), log)
    assert found.schema == {"slice": INT, "end_ns": INT}
    return sorted(found.rows()), counts(log.notes()).get(STRAY, 0)


def test_an_end_closes_what_was_opened_last() -> None:
    """Slices nest on their own track."""
    found = ends(
        (1, 0, 1, 0), (1, 2, 1, 1), (2, 3, 1, 2), (1, 4, -1, None), (2, 5, -1, None)
    )
    assert found == ([(0, None), (1, 4), (2, 5)], 0)


def test_slices_of_no_interest_close_their_own() -> None:
    """They have no number, and yet an end that is not another's."""
    found = ends((1, 0, 1, 0), (1, 2, 1, None), (1, 4, -1, None), (1, 5, -1, None))
    assert found == ([(0, 5)], 0)


def test_ends_of_nothing_close_nothing() -> None:
    """They are counted, and levels go on from there."""
    found = ends(
        *((1, 0, -1, None), (1, 1, -1, None), (1, 2, 1, 0)),
        *((1, 3, -1, None), (1, 4, -1, None), (1, 5, 1, 1)),
    )
    assert found == ([(0, 3), (1, None)], 3)


def test_marks_are_taken_in_the_order_of_time() -> None:
    """Writers write them in any; those of one time stay in the order of the file."""
    found = ends(
        *((1, 20, -1, None), (1, 20, 1, 1), (1, 20, -1, None)),
        *((1, 10, 1, 0), (1, 20, 1, 2), (1, 30, -1, None)),
    )
    assert found == ([(0, 20), (1, 20), (2, 30)], 0)


def test_no_marks_have_no_ends() -> None:
    """Nothing comes of nothing."""
    log = TraceLog()
    expected = pl.DataFrame(schema={"slice": INT, "end_ns": INT})
    assert_frame_equal(ends_of(pl.DataFrame(schema=MARKS), log), expected)


@given(st.lists(st.tuples(st.integers(0, 2), st.booleans()), max_size=40))
def test_pairs_are_those_of_a_stack(marks: list[tuple[int, bool]]) -> None:
    """A stack for each track gives the same ends."""
    stacks: dict[int, list[int]] = {}
    expected: dict[int, int | None] = {}
    stray = 0
    rows = []
    for at, (track, opens) in enumerate(marks):
        stack = stacks.setdefault(track, [])
        rows.append((track, at, 1 if opens else -1, at if opens else None))
        if opens:
            stack.append(at)
            expected[at] = None
        elif stack:
            expected[stack.pop()] = at
        else:
            stray += 1
    assert ends(*rows) == (sorted(expected.items()), stray)
