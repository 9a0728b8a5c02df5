"""Graphs through torch alone: ROCm, and CUDA without ``cuda-bindings``.

torch captures and launches; nodes cannot be told, so recorders map by order.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from layerscope.errors import MeasurementError
from layerscope.graphs.memory import out_of_memory
from layerscope.graphs.replay import Body, Edge, Node, Replay, Timing


class TorchGraphReplay:
    """A graph that torch captured and instantiated."""

    nodes: tuple[Node, ...] = ()
    edges: tuple[Edge, ...] = ()

    def __init__(self, graph: torch.cuda.CUDAGraph, body: Body, passes: int) -> None:
        """Hold `graph`, which runs `passes` passes of `body`."""
        self.body = body
        self.passes = passes
        self._graph = graph

    @property
    def pool(self) -> Any:  # noqa: ANN401 (torch's name for the type is private)
        """The memory pool that holds the graph's intermediates."""
        return self._graph.pool()

    def launch(self) -> None:
        """Enqueue one launch on torch's current stream."""
        self._graph.replay()

    def close(self) -> None:
        """Free the graph and its memory pool."""
        self._graph.reset()


@dataclass(frozen=True, slots=True)
class TorchEventTiming:
    """Replays between torch events."""

    events: tuple[torch.cuda.Event, ...]

    def durations_ns(self) -> list[int]:
        """Wait for the last event; differences of neighbours in nanoseconds."""
        self.events[-1].synchronize()
        return [round(a.elapsed_time(b) * 1e6) for a, b in pairwise(self.events)]


class TorchGraphPlayer:
    """Captures and plays with torch's own graph class."""

    def capture(
        self, body: Body, passes: int, beside: Replay | None = None
    ) -> TorchGraphReplay:
        """Warm `body` outside, and let torch capture and instantiate it.

        Args:
            body: what the graph runs.
            passes: how often.
            beside: shares the memory pool of this open replay.

        Raises:
            MeasurementError: an operation cannot be captured, or memory ran out.
        """
        graph = torch.cuda.CUDAGraph()
        try:
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                body(1)
            stream.synchronize()
            pool = beside.pool if isinstance(beside, TorchGraphReplay) else None
            with torch.cuda.graph(graph, pool, capture_error_mode="thread_local"):
                body(passes)
        except torch.OutOfMemoryError as error:
            raise MeasurementError(out_of_memory(error)) from error
        except RuntimeError as error:
            cause = str(error).splitlines()[0]
            msg = f"it cannot be captured into a graph: {cause}"
            raise MeasurementError(msg) from error
        return TorchGraphReplay(graph, body, passes)

    def time(self, replays: Sequence[Replay]) -> Timing:
        """Enqueue the replays with an event before the first and after each."""
        events = [self._event()]
        for replay in replays:
            replay.launch()
            events.append(self._event())
        return TorchEventTiming(tuple(events))

    def _event(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def wait(self) -> None:
        """Block until the device is idle."""
        torch.cuda.synchronize()
