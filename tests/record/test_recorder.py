import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.errors import MeasurementError
from layerscope.graphs.eager import EagerReplay
from layerscope.record.recorder import (
    Event,
    Launch,
    Place,
    Recorded,
    fault,
    head_place,
    kernels,
    refuse_unmapped,
)
from layerscope.regions import Region
from layerscope.schema import KERNELS, empty

REPLAY = EagerReplay(lambda passes: None, 1)  # noqa: ARG005 (never launched)
ATTENTION, MOE = Place(0, Region.ATTENTION), Place(0, Region.MOE)
CHAIN = ((0, 1), (1, 2))


def event(node: int, start_ns: int, end_ns: int) -> Event:
    """A kernel of which only node and times matter."""
    return Event(node, "kernel", f"k{node}", 7, start_ns, end_ns)


def recorded(
    *events: Event,
    arm: str = "reference",
    edges: tuple[tuple[int, int], ...] = CHAIN,
    unmapped: int = 0,
) -> Recorded:
    """A launch of three nodes: the head, attention and moe."""
    places = {0: head_place(), 1: ATTENTION, 2: MOE}
    return Recorded(Launch(REPLAY, arm, 1, 5), events, places, edges, unmapped)


def test_a_whole_replay_has_no_fault() -> None:
    """Records may come in any order, overlap their neighbours, and start together."""
    assert fault(recorded(event(2, 12, 30), event(0, 10, 14), event(1, 12, 20))) is None
    assert fault(recorded(event(0, 10, 10), event(1, 10, 10), event(2, 10, 10))) is None


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ([], "3 of 3 nodes were not recorded"),
        ([event(0, 10, 14), event(2, 20, 30)], "1 of 3 nodes were not recorded"),
        (
            [event(0, 10, 14), event(1, 14, 20), event(0, 21, 22), event(2, 22, 30)],
            "a node was recorded twice",
        ),
        (
            [event(0, 10, 14), event(1, 14, 13), event(2, 20, 30)],
            "a record has no valid times",
        ),
        (
            [event(0, 0, 14), event(1, 14, 15), event(2, 20, 30)],
            "a record has no valid times",
        ),
        (
            [event(0, 10, 14), event(1, 20, 22), event(2, 19, 30)],
            "a node started before one it depends on",
        ),
    ],
)
def test_every_kind_of_fault_is_told(events: list[Event], why: str) -> None:
    """A missing, doubled, timeless or misplaced record spoils the replay."""
    assert fault(recorded(*events)) == why


def test_a_replay_of_which_nothing_is_known_is_a_fault() -> None:
    """A recorder that saw nothing at all has not seen a layer that took no time."""
    launch = Launch(REPLAY, "reference", 0, 0)
    assert fault(Recorded(launch, (), {})) == "nothing was recorded"


def test_records_that_cannot_be_told_apart_are_the_first_fault() -> None:
    """The recorder's own reason says more than that nodes are missing."""
    launch, why = Launch(REPLAY, "reference", 0, 0), "2 records where 3 were expected"
    assert fault(Recorded(launch, (), {0: ATTENTION}, mismatch=why)) == why
    assert fault(Recorded(launch, (), {}, mismatch=why)) == why


def test_only_the_graphs_own_edges_order_its_nodes() -> None:
    """Parallel branches may start in any order."""
    events = event(0, 10, 14), event(1, 20, 22), event(2, 19, 30)
    assert fault(recorded(*events, edges=((0, 1), (0, 2)))) is None
    assert fault(recorded(*events, edges=())) is None


def test_records_without_a_place_refuse_their_arm() -> None:
    """They are counted over all recordings of the arm, mapped ones included."""
    whole = [event(0, 10, 14), event(1, 14, 20), event(2, 20, 30)]
    recordings = [
        recorded(*whole),
        recorded(*whole, arm="fused", unmapped=1_000),
        recorded(*whole, arm="fused"),
        recorded(arm="fused", unmapped=1),
    ]
    refuse_unmapped(recordings[:1])
    with pytest.raises(MeasurementError) as raised:
        refuse_unmapped(recordings)
    assert str(raised.value) == (
        "fused: 1,001 of 1,007 records belong to no node of a known region, so its "
        "times cannot be attributed"
    )


TWO_LAUNCHES = pl.DataFrame(
    {
        "arm": [*["fused"] * 4, "reference"],
        "experiment": [*["serial"] * 4, "captured"],
        "capture": [2, 2, 2, 2, 0],
        "round": [5, 5, 5, 5, 6],
        "replay": [5, 5, 5, 5, 6],
        "pass_index": [0, -1, 0, 1, 0],
        "node": [2, 0, 1, 3, 0],
        "kind": ["copy", "kernel", "kernel", "fill", "kernel"],
        "name": ["c", "a", "b", "f", "k0"],
        "region": ["moe", "other", "attention", "attention", "attention"],
        "role": [None] * 5,
        "stream": [9, 7, 7, 9, 7],
        "pass_start_ns": [420, 0, 420, 460, 0],
        "start_ns": [80, 0, 0, 0, 0],
        "duration_ns": [200, 400, 80, 10, 5],
        "grid_x": [None, 2, 1, None, None],
        "grid_y": [None, 3, 1, None, None],
        "grid_z": [None, 4, 1, None, None],
        "block_x": [None, 32, 64, None, None],
        "block_y": [None, 1, 2, None, None],
        "block_z": [None, 1, 1, None, None],
        "registers": [None, 40, 24, None, None],
        "static_shared_bytes": [None, 16, 0, None, None],
        "dynamic_shared_bytes": [None, 512, 0, None, None],
    },
    schema=KERNELS,
)
"""A serial launch of four nodes in two passes, and another of one kernel."""


def test_rows_are_relative_to_their_pass_and_keep_the_geometry() -> None:
    """The replay starts at its first record, a pass at its own, wherever listed."""
    events = (
        Event(2, "copy", "c", 9, 1_500, 1_700),
        Event(0, "kernel", "a", 7, 1_000, 1_400, (2, 3, 4), (32, 1, 1), 40, 16, 512),
        Event(1, "kernel", "b", 7, 1_420, 1_500, (1, 1, 1), (64, 2, 1), 24, 0, 0),
        Event(3, "fill", "f", 9, 1_460, 1_470),
    )
    places = {
        0: head_place(),
        1: Place(0, Region.ATTENTION),
        2: Place(0, Region.MOE),
        3: Place(1, Region.ATTENTION),
    }
    launch = Launch(REPLAY, "fused", 2, 5, "serial")
    other = Launch(REPLAY, "reference", 0, 6)
    found = kernels(
        [
            Recorded(launch, events, places),
            Recorded(other, (event(0, 70, 75),), {0: ATTENTION}),
        ]
    )
    assert_frame_equal(found, TWO_LAUNCHES)


def test_no_recordings_give_an_empty_frame() -> None:
    """A block whose every replay was dropped adds no rows."""
    assert_frame_equal(kernels([]), empty(KERNELS))


@given(
    spans=st.lists(
        st.tuples(st.integers(1, 10**15), st.integers(0, 10**9), st.integers(-1, 3)),
        min_size=1,
        max_size=9,
    )
)
def test_absolute_times_can_be_had_back_exactly(
    spans: list[tuple[int, int, int]],
) -> None:
    """Start of the pass plus start in it is the record's start since the first one."""
    events = [event(n, start, start + t) for n, (start, t, _) in enumerate(spans)]
    places = {n: Place(index, Region.MOE) for n, (*_, index) in enumerate(spans)}
    launch = Launch(REPLAY, "reference", 0, 0)
    frame = kernels([Recorded(launch, tuple(events), places)])
    origin_ns = min(start for start, *_ in spans)
    starts = frame.select(pl.col("pass_start_ns") + pl.col("start_ns")).to_series()
    assert starts.to_list() == [start - origin_ns for start, *_ in spans]
    assert frame["duration_ns"].to_list() == [t for _, t, _ in spans]
    assert frame["start_ns"].min() == 0
