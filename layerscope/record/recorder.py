"""What every recorder gives, and the checks that make a recording trustworthy.

A recorder turns launches into one `Event` list a launch; `fault` then demands that the
events are exactly the replay's nodes, in an order its edges allow. A replay that fails
is dropped and counted; a record that belongs to no node refuses the whole arm.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import polars as pl

from layerscope.errors import MeasurementError
from layerscope.graphs.replay import HEAD_PASS, Edge, Replay
from layerscope.regions import Region
from layerscope.schema import KERNELS, conform


class Event(NamedTuple):
    """One record of a kernel, copy, fill or operator; times in nanoseconds."""

    node: int
    kind: str
    name: str
    stream: int
    start_ns: int
    end_ns: int
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: int | None = None
    static_shared_bytes: int | None = None
    dynamic_shared_bytes: int | None = None


class Place(NamedTuple):
    """Where a node stands: its pass and region, and its role if it has one."""

    pass_index: int
    region: str
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One replay to be recorded, and the labels its rows get."""

    replay: Replay
    arm: str
    capture: int
    round: int
    experiment: str = "captured"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a recorder saw of one launch."""

    launch: Launch
    events: tuple[Event, ...]
    places: dict[int, Place]
    """Every node that must have an event."""

    edges: tuple[Edge, ...] = ()
    unmapped: int = 0
    """Records of this launch that belong to no node of a known region."""

    mismatch: str | None = None
    """Why the records could not be told apart by their order; None where they were."""


class Recorder(Protocol):
    """Watches launches while it is attached."""

    name: str

    def attached(self) -> AbstractContextManager[None]:
        """Attach for the block; nothing is left behind after it.

        Raises:
            MeasurementError: the profiler cannot be used here; says how to go on.
        """

    def record(self, launches: Sequence[Launch]) -> list[Recorded]:
        """Launch each in order, wait, and return what was seen, in the same order."""


def fault(recorded: Recorded) -> str | None:
    """Why the replay cannot be trusted, or None.

    Checked: records that could be told apart, every expected node exactly once and at
    least one, end not before start, and no node that starts before one it depends on.
    """
    if recorded.mismatch is not None:
        return recorded.mismatch
    if not recorded.places:
        return "nothing was recorded"
    return _fault_of_records(recorded)


def _fault_of_records(recorded: Recorded) -> str | None:
    starts: dict[int, int] = {}
    for event in recorded.events:
        if event.node in starts:
            return "a node was recorded twice"
        if not 0 < event.start_ns <= event.end_ns:
            return "a record has no valid times"
        starts[event.node] = event.start_ns
    missing = len(recorded.places.keys() - starts.keys())
    if missing:
        return f"{missing} of {len(recorded.places)} nodes were not recorded"
    for source, target in recorded.edges:
        if source in starts and target in starts and starts[target] < starts[source]:
            return "a node started before one it depends on"
    return None


def refuse_unmapped(recordings: Iterable[Recorded]) -> None:
    """Refuse an arm of which any record could not be placed.

    Raises:
        MeasurementError: naming the arm and how many of its records have no place.
    """
    counts: dict[str, tuple[int, int]] = {}
    for recorded in recordings:
        unmapped, total = counts.get(recorded.launch.arm, (0, 0))
        total += len(recorded.events) + recorded.unmapped
        counts[recorded.launch.arm] = (unmapped + recorded.unmapped, total)
    for arm, (unmapped, total) in counts.items():
        if unmapped:
            msg = (
                f"{arm}: {unmapped:,} of {total:,} records belong to no node of a "
                "known region, so its times cannot be attributed"
            )
            raise MeasurementError(msg)


def kernels(recordings: Iterable[Recorded]) -> pl.DataFrame:
    """Rows of `schema.KERNELS`; a launch's round is its replay number."""
    rows = [row for recorded in recordings for row in _rows(recorded)]
    frame = pl.DataFrame(rows, schema=KERNELS, orient="row")
    return conform(frame, KERNELS, what="recorded kernels")


def _rows(recorded: Recorded) -> Iterator[tuple[object, ...]]:
    launch = recorded.launch
    origin_ns = min(event.start_ns for event in recorded.events)
    pass_starts: dict[int, int] = {}
    for event in recorded.events:
        index = recorded.places[event.node].pass_index
        earliest = pass_starts.get(index, event.start_ns)
        pass_starts[index] = min(earliest, event.start_ns)
    for event in recorded.events:
        pass_index, region, role = recorded.places[event.node]
        pass_start_ns = pass_starts[pass_index]
        yield (
            launch.arm,
            launch.experiment,
            launch.capture,
            launch.round,
            launch.round,
            pass_index,
            event.node,
            event.kind,
            event.name,
            str(region),
            role,
            event.stream,
            pass_start_ns - origin_ns,
            event.start_ns - pass_start_ns,
            event.end_ns - event.start_ns,
            *(event.grid or (None, None, None)),
            *(event.block or (None, None, None)),
            event.registers,
            event.static_shared_bytes,
            event.dynamic_shared_bytes,
        )


def head_place() -> Place:
    """The place of what runs before the first pass."""
    return Place(HEAD_PASS, Region.OTHER)
