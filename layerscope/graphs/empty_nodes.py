"""Empty nodes in the graph that a stream is capturing.

They do nothing and leave no record; what follows them waits for them all the same. Put
there through the driver's library, as edges are: what cuda-bindings call these
functions with depends on their version.
"""

import ctypes
from ctypes import byref
from typing import Any, Final

from layerscope.graphs.cuda_edges import call_driver

_ACTIVE: Final = 1
"""``CU_STREAM_CAPTURE_STATUS_ACTIVE``."""

_SET: Final = 1
"""``CU_STREAM_SET_CAPTURE_DEPENDENCIES``: in place of those there are."""

_SO: Final = "empty nodes cannot be put into this graph"


def add_empty_nodes(library: Any, stream: int, count: int) -> None:  # noqa: ANN401
    """Let what `stream` captures next wait for `count` empty nodes in a row.

    The first waits for all that the stream would have waited for, by full edges.
    Nothing happens on a stream that is not capturing, or whose capture has failed.

    Args:
        library: of the driver, from `cuda_edges.driver_library`.
        stream: ``cudaStream_t``.
        count: how many.

    Raises:
        MeasurementError: the driver refuses, as where the stream would wait for a
            kernel by a programmatic edge.
    """
    handle, graph = ctypes.c_void_p(stream), ctypes.c_void_p()
    status, size = ctypes.c_int(), ctypes.c_size_t()
    found = ctypes.POINTER(ctypes.c_void_p)()
    # Neither an id nor the data of edges is asked for: with no place for the data, the
    # driver refuses where there are edges that are not full.
    asked = (byref(status), None, byref(graph), byref(found), None, byref(size))
    call_driver(library, "cuStreamGetCaptureInfo_v3", handle, *asked, so=_SO)
    if status.value != _ACTIVE or not count:
        return
    before = (ctypes.c_void_p * size.value)(*found[: size.value])
    for _ in range(count):
        node = (ctypes.c_void_p * 1)()
        add = (node, graph, before, ctypes.c_size_t(len(before)))
        call_driver(library, "cuGraphAddEmptyNode", *add, so=_SO)
        before = node
    update = (handle, before, None, ctypes.c_size_t(len(before)), ctypes.c_uint(_SET))
    call_driver(library, "cuStreamUpdateCaptureDependencies_v2", *update, so=_SO)
