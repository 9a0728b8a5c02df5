"""HIP graphs as they are edited: `GraphDriver` on the functions of the HIP runtime.

None of it has run on an AMD GPU. It is written after the HIP Runtime API's description
of graphs, and tested on a stand-in for the library.

Edges of HIP graphs carry no data, so there are no programmatic ones, and a kernel that
delays has not been made: serialising and knocking out are what is here.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Final, NoReturn, Protocol

from layerscope.errors import MeasurementError
from layerscope.graphs.replay import Link

_NO_EXPERIMENT: Final = "this experiment cannot be made"


class HipLibrary(Protocol):
    """The functions of ``libamdhip64.so``, as `ctypes.CDLL` gives them."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        """A function that is called with values of ctypes and returns its status."""


class HipGraph:
    """The `GraphDriver` of a graph that was captured."""

    def __init__(
        self, library: HipLibrary, graph: int, handles: Sequence[int], stream: int
    ) -> None:
        """Take a graph.

        Args:
            library: of the HIP runtime.
            graph: ``hipGraph_t``, which somebody else keeps alive.
            handles: ``hipGraphNode_t`` of its nodes, in creation order.
            stream: ``hipStream_t`` that executable graphs will run on.
        """
        self.count = len(handles)
        self._library = library
        self._graph = ctypes.c_void_p(graph)
        self._handles = list(handles)
        self._stream = ctypes.c_void_p(stream)

    def links(self) -> tuple[Link, ...]:
        """The links that the graph has now; all are full."""
        count = ctypes.c_size_t()
        self._call("hipGraphGetEdges", self._graph, None, None, ctypes.byref(count))
        if not count.value:
            return ()
        sources = (ctypes.c_void_p * count.value)()
        targets = (ctypes.c_void_p * count.value)()
        edges = (self._graph, sources, targets, ctypes.byref(count))
        self._call("hipGraphGetEdges", *edges)
        numbers = {handle: number for number, handle in enumerate(self._handles)}
        pairs = zip(sources, targets, strict=True)
        return tuple(sorted(Link(numbers[a], numbers[b]) for a, b in pairs))

    def remove(self, links: Sequence[Link]) -> None:
        """Remove links that are there."""
        self._edit("hipGraphRemoveDependencies", links)

    def add(self, links: Sequence[Link]) -> None:
        """Add links that are not there; only full ones can be."""
        if not all(link.is_full for link in links):
            _refuse("HIP graphs have no programmatic edges")
        self._edit("hipGraphAddDependencies", links)

    def add_delay(self, delay_ns: int) -> None:
        """Refuse; the kernel is written for CUDA."""
        _refuse(f"there is no kernel that delays {delay_ns} ns on HIP")

    def destroy_delays(self) -> None:
        """Nothing; there never are any."""

    def instantiate(self) -> ctypes.c_void_p:
        """``hipGraphExec_t`` of what the graph is now."""
        executable = ctypes.c_void_p()
        flags = ctypes.c_ulonglong(0)
        made = (ctypes.byref(executable), self._graph, flags)
        self._call("hipGraphInstantiateWithFlags", *made)
        return executable

    def upload(self, executable: ctypes.c_void_p) -> None:
        """Bring the executable graph to the device."""
        self._call("hipGraphUpload", executable, self._stream)

    def disable(self, executable: ctypes.c_void_p, node: int) -> None:
        """Let a node do nothing."""
        handle = ctypes.c_void_p(self._handles[node])
        off = ctypes.c_uint(0)
        self._call("hipGraphNodeSetEnabled", executable, handle, off)

    def is_enabled(self, executable: ctypes.c_void_p, node: int) -> bool:
        """Whether a node does its work."""
        handle = ctypes.c_void_p(self._handles[node])
        enabled = ctypes.c_uint()
        state = (executable, handle, ctypes.byref(enabled))
        self._call("hipGraphNodeGetEnabled", *state)
        return bool(enabled.value)

    def destroy(self, executable: ctypes.c_void_p) -> None:
        """Free the executable graph."""
        self._call("hipGraphExecDestroy", executable)

    def _edit(self, name: str, links: Sequence[Link]) -> None:
        if not links:
            return
        nodes = ctypes.c_void_p * len(links)
        sources = nodes(*(self._handles[link.source] for link in links))
        targets = nodes(*(self._handles[link.target] for link in links))
        count = ctypes.c_size_t(len(links))
        self._call(name, self._graph, sources, targets, count)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            _refuse(f"{name} failed with status {status} of HIP")


def _refuse(cause: str) -> NoReturn:
    msg = f"{cause}; {_NO_EXPERIMENT}"
    raise MeasurementError(msg)
