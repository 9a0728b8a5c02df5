"""What the runner and the recorders know of a replay, whatever device it runs on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    from layerscope.graphs.edits import Change

Body: TypeAlias = Callable[[int], None]
"""Runs the head and the given number of passes, marking passes and regions."""

HEAD_PASS = -1
"""Pass index of what runs before the first pass."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node of a captured graph."""

    index: int
    """Creation order, from 0."""

    handle: int
    """``cudaGraphNode_t`` of the captured graph, as an integer."""

    kind: str
    """``kernel``, ``copy`` or ``fill`` (what recorders report), or another type."""

    pass_index: int
    """The pass it belongs to, or `HEAD_PASS`."""

    region: str
    """A `Region`, or a name of foreign code's own."""

    role: str | None = None
    """What `regions.role` named it, if anything."""


Edge: TypeAlias = tuple[int, int]
"""A dependency between two nodes (source, target), by creation order."""


@dataclass(frozen=True, slots=True, order=True)
class Link:
    """An edge of a captured graph with its data; a full one unless it says otherwise.

    CUDA Runtime API, ``cudaGraphEdgeData``. A programmatic edge lets its target start
    once every block of its source has triggered or ended (`from_port` 1), or started
    (2). The target sees what the source writes only after a wait of its own.
    """

    source: int
    """Creation order of the node that comes first."""

    target: int
    """Creation order of the node that depends on it."""

    programmatic: bool = False
    from_port: int = 0
    to_port: int = 0

    @classmethod
    def early(cls, source: int, target: int) -> "Link":
        """What a launch with the programmatic attribute is captured as."""
        return cls(source, target, programmatic=True, from_port=1)

    @property
    def is_full(self) -> bool:
        """Whether the target starts after the source's end, and sees its writes."""
        return self == self.full

    @property
    def full(self) -> "Link":
        """The full edge between the same nodes."""
        return Link(self.source, self.target)


class Replay(Protocol):
    """A body bound to a number of passes, ready to be launched again and again."""

    @property
    def passes(self) -> int:
        """Passes of one launch."""

    @property
    def body(self) -> Body:
        """What a launch runs."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """Nodes in creation order; empty where the runtime does not tell them."""

    @property
    def edges(self) -> tuple[Edge, ...]:
        """Dependencies between the nodes."""

    def launch(self) -> None:
        """Enqueue one replay; does not wait for it where the device is asynchronous."""

    def close(self) -> None:
        """Free what the replay holds on the device."""


@runtime_checkable
class Editable(Replay, Protocol):
    """A replay of a captured graph that can be edited."""

    @property
    def links(self) -> tuple[Link, ...]:
        """Every edge with its data, sorted."""

    def variant(self, change: "Change") -> Replay:
        """A second replay of the graph with `change` made; this one stays as it was.

        Both run the same kernels on the same memory, so never at once. Closing this
        replay closes its variants.

        Raises:
            MeasurementError: the graph cannot be changed so, or not be instantiated
                then; in one line. The captured graph is as it was.
        """


class Timing(Protocol):
    """Times of replays that were enqueued."""

    def durations_ns(self) -> list[int]:
        """Wait for the replays; their durations in launch order."""


class Player(Protocol):
    """Turns bodies into replays, and times them without a profiler."""

    def capture(self, body: Body, passes: int, beside: Replay | None = None) -> Replay:
        """A replay of `passes` passes.

        Args:
            body: what it runs.
            passes: how often.
            beside: an open replay of the same body, whose memory this one shares. The
                intermediates of both then lie at the same addresses, so that their
                times differ by their lengths alone. They must never run at once.

        Raises:
            MeasurementError: the device cannot capture or run it.
        """

    def time(self, replays: Sequence[Replay]) -> Timing:
        """Enqueue each replay once, in order, without idling between them."""

    def wait(self) -> None:
        """Block until everything enqueued has finished."""
