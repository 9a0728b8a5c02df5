"""Edges of CUDA graphs with their data, read and written through the driver's library.

Not through cuda-bindings: its version 13.0.3 frees the data of edges before Python can
read it. Graphs and nodes of the runtime are those of the driver.
"""

import ctypes
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any, Final

from layerscope.errors import MeasurementError
from layerscope.graphs.replay import Link

_PROGRAMMATIC: Final = 1
"""``CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC``."""


class _EdgeData(ctypes.Structure):
    """``CUgraphEdgeData`` (CUDA Driver API, since 12.3)."""

    _fields_ = (
        ("from_port", ctypes.c_ubyte),
        ("to_port", ctypes.c_ubyte),
        ("type", ctypes.c_ubyte),
        ("reserved", ctypes.c_ubyte * 5),
    )


@cache
def driver_library() -> Any:  # noqa: ANN401 (its functions are made as they are asked)
    """The library of the installed driver.

    Raises:
        MeasurementError: there is none.
    """
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        msg = f"edges of graphs cannot be read: {error}; install an NVIDIA driver"
        raise MeasurementError(msg) from error


def call_driver(
    library: Any,  # noqa: ANN401 (ctypes)
    name: str,
    *arguments: object,
    so: str,
) -> None:
    """Call a function of the driver.

    Args:
        library: from `driver_library`.
        name: of the function, with its version.
        arguments: what it is called with, as ctypes takes them.
        so: what its failure means.

    Raises:
        MeasurementError: there is no such function, or the driver refuses.
    """
    try:
        function = getattr(library, name)
    except AttributeError as error:  # edges have data since CUDA 12.3
        msg = f"the driver has no {name}; install one for CUDA 12.3 or newer"
        raise MeasurementError(msg) from error
    status = function(*arguments)
    if status:
        text = ctypes.c_char_p()
        library.cuGetErrorName(status, ctypes.byref(text))
        cause = (text.value or b"an unknown status").decode()
        msg = f"{name} failed with {cause}; {so}"
        raise MeasurementError(msg)


def node_handles(graph: int) -> list[int]:
    """The handles of the nodes of a graph, in creation order.

    Asked for at every mark of a capture: as one array, for an object of the bindings a
    node would take most of a capture's time.

    Args:
        graph: ``cudaGraph_t``.

    Raises:
        MeasurementError: the driver refuses.
    """
    library, handle = driver_library(), ctypes.c_void_p(graph)
    count = ctypes.c_size_t()
    so = "the nodes of this graph cannot be told"
    get = ("cuGraphGetNodes", handle)
    call_driver(library, *get, None, ctypes.byref(count), so=so)
    nodes = (ctypes.c_uint64 * count.value)()
    if count.value:
        call_driver(library, *get, nodes, ctypes.byref(count), so=so)
    return list(nodes)


def _kind(link: Link) -> tuple[bool, int, int]:
    return link.programmatic, link.from_port, link.to_port


class Edges:
    """The edges of one graph."""

    def __init__(self, library: Any, graph: int) -> None:  # noqa: ANN401 (ctypes)
        """Take the graph whose handle is `graph`, of the driver in `library`."""
        self._library = library
        self._graph = ctypes.c_void_p(graph)

    def read(self, numbers: Mapping[int, int]) -> tuple[Link, ...]:
        """All edges, sorted.

        Args:
            numbers: creation order by handle, of every node of the graph.

        Raises:
            MeasurementError: the driver refuses.
        """
        count = ctypes.c_size_t()
        get = ("cuGraphGetEdges_v2", self._graph)
        self._call(*get, None, None, None, ctypes.byref(count))
        sources = (ctypes.c_void_p * count.value)()
        targets = (ctypes.c_void_p * count.value)()
        data = (_EdgeData * count.value)()
        if count.value:
            self._call(*get, sources, targets, data, ctypes.byref(count))
        edges = zip(sources, targets, data, strict=True)
        return tuple(
            sorted(
                Link(
                    source=numbers[source],
                    target=numbers[target],
                    programmatic=edge.type == _PROGRAMMATIC,
                    from_port=edge.from_port,
                    to_port=edge.to_port,
                )
                for source, target, edge in edges
            )
        )

    def remove(self, links: Sequence[Link], handles: Sequence[int]) -> None:
        """Remove `links`; their data must be what the graph has.

        Args:
            links: to remove.
            handles: of every node, in creation order.

        Raises:
            MeasurementError: the driver refuses.
        """
        self._edit("cuGraphRemoveDependencies_v2", links, handles)

    def add(self, links: Sequence[Link], handles: Sequence[int]) -> None:
        """Add `links`; otherwise as `remove`."""
        self._edit("cuGraphAddDependencies_v2", links, handles)

    def _edit(self, name: str, links: Sequence[Link], handles: Sequence[int]) -> None:
        """Call `name` once for the links of each kind.

        Edges of several kinds that are added by one call are not all read back as what
        they were to be (driver 580).
        """
        kinds = groupby(sorted(links, key=_kind), key=_kind)
        for _, alike in kinds:
            self._edit_alike(name, list(alike), handles)

    def _edit_alike(
        self, name: str, links: Sequence[Link], handles: Sequence[int]
    ) -> None:
        count = len(links)
        sources = (ctypes.c_void_p * count)(*(handles[link.source] for link in links))
        targets = (ctypes.c_void_p * count)(*(handles[link.target] for link in links))
        data = (_EdgeData * count)(
            *(
                _EdgeData(link.from_port, link.to_port, int(link.programmatic))
                for link in links
            )
        )
        size = ctypes.c_size_t(count)
        self._call(name, self._graph, sources, targets, data, size)

    def _call(self, name: str, *arguments: object) -> None:
        so = "edges of this graph cannot be used"
        call_driver(self._library, name, *arguments, so=so)
