import ctypes
from collections.abc import Callable
from typing import Any

import pytest

from layerscope.errors import MeasurementError
from layerscope.graphs.empty_nodes import add_empty_nodes

GRAPH, STREAM = 7, 1 << 47
ACTIVE, INVALIDATED = 1, 2
LOSSY_QUERY = 1


class CapturingLibrary:
    """A driver with one stream, which captures into one graph.

    Nodes get handles from 100 on; of each, the nodes that it waits for are noted.
    """

    def __init__(self, *dependencies: int, status: int = ACTIVE) -> None:
        self.dependencies = dependencies
        self.status = status
        self.nodes: dict[int, tuple[int, ...]] = {}
        self.is_lossy = False

    def __getattr__(self, name: str) -> Callable[..., int]:
        """The function `name` of the library."""
        known: dict[str, Callable[..., int]] = {
            "cuStreamGetCaptureInfo_v3": self._info,
            "cuGraphAddEmptyNode": self._add,
            "cuStreamUpdateCaptureDependencies_v2": self._update,
            "cuGetErrorName": self._error_name,
        }
        if name not in known:
            raise AttributeError(name)
        return known[name]

    def _info(self, stream: Any, status: Any, *places: Any) -> int:  # noqa: ANN401
        identifier, graph, dependencies, data, count = places
        assert (stream.value, identifier, data) == (STREAM, None, None)
        if self.is_lossy:
            return LOSSY_QUERY
        status._obj.value = self.status
        if self.status == ACTIVE:
            graph._obj.value = GRAPH
            array = (ctypes.c_void_p * len(self.dependencies))(*self.dependencies)
            pointer = ctypes.POINTER(ctypes.c_void_p)
            dependencies._obj.contents = ctypes.cast(array, pointer).contents
            count._obj.value = len(self.dependencies)
        return 0

    def _add(self, node: Any, graph: Any, before: Any, count: Any) -> int:  # noqa: ANN401
        assert (graph.value, len(before)) == (GRAPH, count.value)
        node[0] = 100 + len(self.nodes)
        self.nodes[node[0]] = tuple(before)
        return 0

    def _update(self, stream: Any, nodes: Any, data: Any, *rest: Any) -> int:  # noqa: ANN401
        count, flags = rest
        assert (stream.value, data, flags.value) == (STREAM, None, 1)
        assert len(nodes) == count.value
        self.dependencies = tuple(nodes)
        return 0

    def _error_name(self, status: int, text: Any) -> int:  # noqa: ANN401
        assert status == LOSSY_QUERY
        text._obj.value = b"CUDA_ERROR_LOSSY_QUERY"
        return 0


def test_empty_nodes_stand_in_a_row_before_what_is_captured_next() -> None:
    """The first waits for all that the stream waited for, the stream for the last."""
    library = CapturingLibrary(11, 12)
    add_empty_nodes(library, STREAM, 3)
    assert library.nodes == {100: (11, 12), 101: (100,), 102: (101,)}
    assert library.dependencies == (102,)


def test_a_capture_may_begin_with_them() -> None:
    """The first then waits for nothing."""
    library = CapturingLibrary()
    add_empty_nodes(library, STREAM, 1)
    assert (library.nodes, library.dependencies) == ({100: ()}, (100,))


@pytest.mark.parametrize(("status", "count"), [(0, 3), (INVALIDATED, 3), (ACTIVE, 0)])
def test_where_there_is_nothing_to_add_the_stream_stays_as_it_is(
    status: int, count: int
) -> None:
    """It does not capture, its capture has failed, or none are wanted."""
    library = CapturingLibrary(11, status=status)
    add_empty_nodes(library, STREAM, count)
    assert (library.nodes, library.dependencies) == ({}, (11,))


def test_edges_that_are_not_full_are_refused() -> None:
    """The driver says so where nobody asks for their data."""
    library = CapturingLibrary(11)
    library.is_lossy = True
    with pytest.raises(MeasurementError) as caught:
        add_empty_nodes(library, STREAM, 1)
    assert str(caught.value) == (
        "cuStreamGetCaptureInfo_v3 failed with CUDA_ERROR_LOSSY_QUERY; "
        "empty nodes cannot be put into this graph"
    )
