"""Replays without a graph: the body runs as it is, on the CPU."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from layerscope.graphs.replay import Body, Edge, Node, Replay, Timing


@dataclass(frozen=True, slots=True)
class EagerReplay:
    """A body that is simply called."""

    body: Body
    passes: int
    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()

    def launch(self) -> None:
        """Run the body to its end."""
        self.body(self.passes)

    def close(self) -> None:
        """Nothing is held."""


@dataclass(frozen=True, slots=True)
class EagerTiming:
    """Times that are known already."""

    measured_ns: list[int]

    def durations_ns(self) -> list[int]:
        """The durations in launch order."""
        return self.measured_ns


class EagerPlayer:
    """Plays bodies on the calling thread and times them by the monotonic clock."""

    def capture(
        self,
        body: Body,
        passes: int,
        beside: Replay | None = None,  # noqa: ARG002 (nothing is held to be shared)
    ) -> EagerReplay:
        """Bind `body` to `passes`, and run it once to warm it."""
        body(passes)
        return EagerReplay(body, passes)

    def time(self, replays: Sequence[Replay]) -> Timing:
        """Run each replay once, in order."""
        durations = []
        for replay in replays:
            start_ns = time.perf_counter_ns()
            replay.launch()
            durations.append(time.perf_counter_ns() - start_ns)
        return EagerTiming(durations)

    def wait(self) -> None:
        """Nothing is ever pending."""
