"""CUDA graphs: own capture, instantiate, upload, launch, and exact node identity.

Region node sets come from set differences of node handles: while a stream captures,
the graph being built can be asked for its nodes at every mark, so no marker ever
reaches the device.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeAlias

import torch
from cuda.bindings import runtime

from layerscope.errors import MeasurementError
from layerscope.graphs.memory import out_of_memory
from layerscope.graphs.replay import HEAD_PASS, Body, Edge, Node, Replay, Timing
from layerscope.regions import Mark, observing

_NODE_KINDS: Final = {
    runtime.cudaGraphNodeType.cudaGraphNodeTypeKernel: "kernel",
    runtime.cudaGraphNodeType.cudaGraphNodeTypeMemcpy: "copy",
    runtime.cudaGraphNodeType.cudaGraphNodeTypeMemset: "fill",
}
_Pool: TypeAlias = Any
"""What torch calls a memory pool by; its own name for the type is private."""

RECORDED_KINDS: Final = frozenset(_NODE_KINDS.values())


def call(function: Any, *arguments: Any) -> Any:  # noqa: ANN401 (untyped bindings)
    """Call a function of the CUDA runtime and unwrap its result.

    Returns:
        None, the one value, or the tuple of values after the status.

    Raises:
        MeasurementError: the status is not success; names function and status.
    """
    status, *values = function(*arguments)
    if status != runtime.cudaError_t.cudaSuccess:
        name = getattr(function, "__name__", "CUDA call")
        msg = f"{name} failed with {status.name}; the run cannot go on"
        raise MeasurementError(msg)
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


def _handles(graph: Any) -> list[int]:  # noqa: ANN401 (untyped bindings)
    _, count = call(runtime.cudaGraphGetNodes, graph)
    if not count:
        return []
    nodes, _ = call(runtime.cudaGraphGetNodes, graph, count)
    return [int(node) for node in nodes[:count]]


@dataclass(slots=True)
class _NodeObserver:
    """Notes, at every mark that closes, which nodes were added since it opened."""

    stream: int
    owners: dict[int, tuple[int, str]] = field(default_factory=dict)
    roles: dict[int, str] = field(default_factory=dict)
    _pass_index: int = HEAD_PASS
    _open: list[set[int]] = field(default_factory=list)

    def opened(self, mark: Mark) -> None:
        """Remember the nodes that exist before the region or role."""
        if mark.kind == "pass":
            self._pass_index = int(mark.name)
        else:
            self._open.append(self._current())

    def closed(self, mark: Mark) -> None:
        """Give the region or role all nodes that are new; inner ones keep theirs."""
        if mark.kind == "pass":
            self._pass_index = HEAD_PASS
            return
        for handle in self._current() - self._open.pop():
            if mark.kind == "region":
                self.owners.setdefault(handle, (self._pass_index, mark.name))
            else:
                self.roles.setdefault(handle, mark.name)

    def _current(self) -> set[int]:
        """Nodes captured so far; none once the capture has failed.

        The operation that broke it raises an error of its own.
        """
        status, _, graph, *_ = call(runtime.cudaStreamGetCaptureInfo, self.stream)
        active = runtime.cudaStreamCaptureStatus.cudaStreamCaptureStatusActive
        return set(_handles(graph)) if status == active else set()


class GraphReplay:
    """An instantiated and uploaded graph."""

    def __init__(self, graph: torch.cuda.CUDAGraph, replay: "_Captured") -> None:
        """Instantiate `graph` on its own, past torch's replay, and upload it."""
        self.passes = replay.passes
        self.body = replay.body
        self.nodes = replay.nodes
        self.edges = replay.edges
        self._graph = graph  # keeps its memory pool
        self._stream = replay.stream
        self._exec = call(runtime.cudaGraphInstantiate, graph.raw_cuda_graph(), 0)
        call(runtime.cudaGraphUpload, self._exec, self._stream)

    @property
    def pool(self) -> _Pool:
        """The memory pool that holds the graph's intermediates."""
        return self._graph.pool()

    def launch(self) -> None:
        """Enqueue one launch on the player's stream."""
        call(runtime.cudaGraphLaunch, self._exec, self._stream)

    def close(self) -> None:
        """Destroy the executable graph and let go of the captured one."""
        if self._exec is not None:
            call(runtime.cudaGraphExecDestroy, self._exec)
            self._graph.reset()
            self._exec = None


@dataclass(frozen=True, slots=True)
class _Captured:
    body: Body
    passes: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    stream: int


class EventTiming:
    """Replays between CUDA events; the events are read when asked for."""

    def __init__(self, events: list[Any]) -> None:
        """Take `events`, one before the first replay and one after each."""
        self._events = events

    def durations_ns(self) -> list[int]:
        """Wait for the last event; differences of neighbours in nanoseconds."""
        call(runtime.cudaEventSynchronize, self._events[-1])
        spans_ms = [
            call(runtime.cudaEventElapsedTime, before, after)
            for before, after in pairwise(self._events)
        ]
        for event in self._events:
            call(runtime.cudaEventDestroy, event)
        return [round(span_ms * 1e6) for span_ms in spans_ms]


class GraphPlayer:
    """Captures and plays on one stream of the current CUDA device."""

    def __init__(self) -> None:
        """Make the stream that everything is captured and launched on."""
        self._stream = torch.cuda.Stream()

    def capture(
        self, body: Body, passes: int, beside: Replay | None = None
    ) -> GraphReplay:
        """Warm `body` outside, capture it, and instantiate the graph.

        Args:
            body: what the graph runs.
            passes: how often.
            beside: shares the memory pool of this open replay.

        Raises:
            MeasurementError: an operation cannot be captured, the device is out of
                memory, or a node belongs to no region.
        """
        try:
            with torch.cuda.stream(self._stream):
                body(1)
                self._stream.synchronize()
                graph, observer = self._record(body, passes, _pool(beside))
        except torch.OutOfMemoryError as error:
            raise MeasurementError(out_of_memory(error)) from error
        except RuntimeError as error:
            cause = str(error).splitlines()[0]
            msg = f"it cannot be captured into a CUDA graph: {cause}"
            raise MeasurementError(msg) from error
        raw = graph.raw_cuda_graph()
        nodes = _nodes(_handles(raw), observer)
        stream = self._stream.cuda_stream
        edges = _edges(raw, nodes)
        return GraphReplay(graph, _Captured(body, passes, nodes, edges, stream))

    def _record(
        self, body: Body, passes: int, pool: _Pool | None
    ) -> tuple[torch.cuda.CUDAGraph, _NodeObserver]:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        observer = _NodeObserver(self._stream.cuda_stream)
        graph.capture_begin(pool=pool, capture_error_mode="thread_local")
        try:
            with observing(observer):
                body(passes)
        except BaseException:
            # Ending an invalidated capture fails too; the first error is the cause.
            with suppress(RuntimeError):
                graph.capture_end()
            raise
        graph.capture_end()
        return graph, observer

    def time(self, replays: Sequence[Replay]) -> Timing:
        """Enqueue the replays with an event before the first and after each."""
        events = [self._event()]
        for replay in replays:
            replay.launch()
            events.append(self._event())
        return EventTiming(events)

    def _event(self) -> Any:  # noqa: ANN401 (untyped bindings)
        event = call(runtime.cudaEventCreate)
        call(runtime.cudaEventRecord, event, self._stream.cuda_stream)
        return event

    def wait(self) -> None:
        """Block until the device is idle.

        Not the stream alone: inputs are restarted and results poisoned on torch's
        current one, and no replay may begin before that is done.
        """
        torch.cuda.synchronize()


def _pool(beside: Replay | None) -> _Pool | None:
    return beside.pool if isinstance(beside, GraphReplay) else None


def _nodes(handles: list[int], observer: _NodeObserver) -> tuple[Node, ...]:
    owners = observer.owners
    lost = [handle for handle in handles if handle not in owners]
    if lost:
        msg = (
            f"{len(lost)} of {len(handles)} graph nodes were captured outside every "
            "region; a backend must enqueue its work inside Step.run"
        )
        raise MeasurementError(msg)
    nodes = []
    for index, handle in enumerate(handles):
        pass_index, region = owners[handle]
        node_type = call(runtime.cudaGraphNodeGetType, handle)
        kind = _NODE_KINDS.get(node_type, node_type.name)
        role = observer.roles.get(handle)
        nodes.append(Node(index, handle, kind, pass_index, region, role))
    return tuple(nodes)


def _edges(graph: int, nodes: tuple[Node, ...]) -> tuple[Edge, ...]:
    index = {node.handle: node.index for node in nodes}
    *_, count = call(runtime.cudaGraphGetEdges, graph)
    if not count:
        return ()
    sources, targets, *_ = call(runtime.cudaGraphGetEdges, graph, count)
    return tuple(
        (index[int(source)], index[int(target)])
        for source, target in zip(sources, targets, strict=True)
    )
