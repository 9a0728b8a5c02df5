"""CUDA graphs: own capture, instantiate, upload, launch, and exact node identity.

Region node sets come from set differences of node handles: while a stream captures,
the graph being built can be asked for its nodes at every mark, so no marker ever
reaches the device.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, Final, TypeAlias

import torch
from cuda.bindings import driver, runtime

from layerscope.errors import MeasurementError
from layerscope.graphs.cuda_edges import node_handles
from layerscope.graphs.cuda_graph import CudaGraph, call
from layerscope.graphs.driver import Executable, instantiate_changed
from layerscope.graphs.edits import Change
from layerscope.graphs.memory import out_of_memory
from layerscope.graphs.replay import HEAD_PASS, Body, Edge, Link, Node, Replay, Timing
from layerscope.regions import Mark, observing

_TYPES: Final = driver.CUgraphNodeType  # the runtime's has no memory operations
_NODE_KINDS: Final = {
    _TYPES.CU_GRAPH_NODE_TYPE_KERNEL: "kernel",
    _TYPES.CU_GRAPH_NODE_TYPE_MEMCPY: "copy",
    _TYPES.CU_GRAPH_NODE_TYPE_MEMSET: "fill",
    _TYPES.CU_GRAPH_NODE_TYPE_HOST: "host call",
    _TYPES.CU_GRAPH_NODE_TYPE_GRAPH: "child graph",
    _TYPES.CU_GRAPH_NODE_TYPE_EMPTY: "empty",
    _TYPES.CU_GRAPH_NODE_TYPE_WAIT_EVENT: "event wait",
    _TYPES.CU_GRAPH_NODE_TYPE_EVENT_RECORD: "event record",
    _TYPES.CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL: "semaphore signal",
    _TYPES.CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT: "semaphore wait",
    _TYPES.CU_GRAPH_NODE_TYPE_MEM_ALLOC: "allocation",
    _TYPES.CU_GRAPH_NODE_TYPE_MEM_FREE: "free",
    _TYPES.CU_GRAPH_NODE_TYPE_BATCH_MEM_OP: "memory operation",
    _TYPES.CU_GRAPH_NODE_TYPE_CONDITIONAL: "conditional",
}
_Pool: TypeAlias = Any
"""What torch calls a memory pool by; its own name for the type is private."""

RECORDED_KINDS: Final = frozenset({"kernel", "copy", "fill"})
"""Kinds of nodes that leave a record."""


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
        return set(node_handles(int(graph))) if status == active else set()


@dataclass(frozen=True, slots=True)
class _Captured:
    body: Body
    passes: int
    nodes: tuple[Node, ...]
    links: tuple[Link, ...]
    driver: CudaGraph
    stream: int


class _Launched:
    """An executable graph, and what recorders know of it."""

    def __init__(
        self, captured: _Captured, executable: Executable, change: Change
    ) -> None:
        off = set(change.disabled)
        self.passes = captured.passes
        self.body = captured.body
        self.nodes = tuple(node for node in captured.nodes if node.index not in off)
        self.links = change.applied(captured.links)
        self.edges: tuple[Edge, ...] = tuple(
            (link.source, link.target) for link in self.links
        )
        self._stream = captured.stream
        self._exec = executable

    def launch(self) -> None:
        """Enqueue one launch on the player's stream."""
        call(runtime.cudaGraphLaunch, self._exec, self._stream)

    def close(self) -> None:
        """Destroy the executable graph, if it is still there."""
        if self._exec is not None:
            call(runtime.cudaGraphExecDestroy, self._exec)
            self._exec = None


class GraphVariant(_Launched):
    """An instantiated and uploaded graph that differs from the captured one.

    Disabled nodes are not among `nodes`, since they leave no record. Kernels that delay
    are not either, and leave one: delays are timed, not recorded.
    """

    def __init__(
        self, parent: "GraphReplay", executable: Executable, change: Change
    ) -> None:
        """Hold `executable`, made of `parent` with `change`; keeps `parent` alive."""
        super().__init__(parent.captured, executable, change)
        self._parent = parent


class GraphReplay(_Launched):
    """An instantiated and uploaded graph."""

    def __init__(self, graph: torch.cuda.CUDAGraph, captured: _Captured) -> None:
        """Instantiate `graph` on its own, past torch's replay, and upload it."""
        executable = call(runtime.cudaGraphInstantiate, graph.raw_cuda_graph(), 0)
        super().__init__(captured, executable, Change())
        self.captured = captured
        self._graph = graph  # keeps its memory pool
        self._variants: list[GraphVariant] = []
        call(runtime.cudaGraphUpload, executable, captured.stream)

    @property
    def pool(self) -> _Pool:
        """The memory pool that holds the graph's intermediates."""
        return self._graph.pool()

    def variant(self, change: Change) -> GraphVariant:
        """A second executable graph, with `change` made; see `Editable.variant`."""
        captured = self.captured
        executable = instantiate_changed(captured.driver, captured.links, change)
        made = GraphVariant(self, executable, change)
        self._variants.append(made)
        return made

    def close(self) -> None:
        """Destroy the executable graphs and let go of the captured one."""
        for variant in self._variants:
            variant.close()
        if self._exec is not None:
            super().close()
            self._graph.reset()


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


@cache
def _stream_of(index: int) -> torch.cuda.Stream:
    """That of all players of a device: graphs on a second one slow down the others."""
    return torch.cuda.Stream(index)


class GraphPlayer:
    """Captures and plays on the current CUDA device, on the stream of all players."""

    def __init__(self) -> None:
        """Take the stream that everything is captured and launched on."""
        self._stream = _stream_of(torch.cuda.current_device())

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
        raw, stream = graph.raw_cuda_graph(), self._stream.cuda_stream
        handles = node_handles(raw)
        nodes = _nodes(handles, observer)
        driver = CudaGraph(raw, handles, stream)
        links = driver.links()
        return GraphReplay(graph, _Captured(body, passes, nodes, links, driver, stream))

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
        node_type = call(driver.cuGraphNodeGetType, handle)
        kind = _NODE_KINDS.get(node_type, node_type.name)
        role = observer.roles.get(handle)
        nodes.append(Node(index, handle, kind, pass_index, region, role))
    return tuple(nodes)
