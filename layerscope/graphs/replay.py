"""What the runner and the recorders know of a replay, whatever device it runs on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

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
