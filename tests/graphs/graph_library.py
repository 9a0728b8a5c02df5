"""A graph in the memory of a library that is called as ctypes calls a driver's."""

import ctypes
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

GRAPH, STREAM, EXECUTABLE = 7, 8, 9
"""The handles that the library knows."""

INVALID = 1
"""The status of a call that is refused."""

Edge: TypeAlias = tuple[int, ...]
"""Handles of source and target; with CUDA also from port, to port and type."""


class GraphLibrary:
    """CUDA's and HIP's functions for edges, and HIP's for executable graphs."""

    def __init__(self, *edges: Edge) -> None:
        """Begin with `edges`; calls named in `failing` are refused."""
        self.edges = set(edges)
        self.nodes: list[int] = []
        self.failing: set[str] = set()
        self.disabled: set[int] = set()
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., int]:
        """The function `name` of the library."""
        return partial(self._called, name)

    def _called(self, name: str, *arguments: Any) -> int:  # noqa: ANN401
        self.calls.append(name)
        if name in self.failing:
            return INVALID
        if name == "cuGraphGetNodes":
            return self._tell_nodes(*arguments)
        if "GetEdges" in name:
            return self._read(*arguments)
        if "Dependencies" in name:
            return self._write(name, *arguments)
        return self._other(name, *arguments)

    def _tell_nodes(self, graph: Any, nodes: Any, count: Any) -> int:  # noqa: ANN401
        assert graph.value == GRAPH
        if nodes is None:
            count._obj.value = len(self.nodes)
            return 0
        assert len(nodes) == count._obj.value == len(self.nodes)
        nodes[:] = self.nodes
        return 0

    def _read(self, graph: Any, sources: Any, targets: Any, *rest: Any) -> int:  # noqa: ANN401
        *data, count = rest
        assert graph.value == GRAPH
        if sources is None:
            count._obj.value = len(self.edges)
            return 0
        assert len(sources) == len(targets) == count._obj.value == len(self.edges)
        for place, (source, target, *values) in enumerate(sorted(self.edges)):
            sources[place], targets[place] = source, target
            for edge in data:
                edge[place].from_port, edge[place].to_port, edge[place].type = values
        return 0

    def _write(self, name: str, graph: Any, *arrays: Any) -> int:  # noqa: ANN401
        sources, targets, *data, count = arrays
        assert graph.value == GRAPH
        assert len(sources) == len(targets) == count.value
        edges: set[Edge] = set(zip(sources, targets, strict=True))
        for values in data:
            ends = zip(sources, targets, values, strict=True)
            edges = {(a, b, v.from_port, v.to_port, v.type) for a, b, v in ends}
        if "Remove" in name:
            self.edges, known = self.edges - edges, edges <= self.edges
            return 0 if known else INVALID
        self.edges, known = self.edges | edges, bool(edges & self.edges)
        return INVALID if known else 0

    def _other(self, name: str, *arguments: Any) -> int:  # noqa: ANN401
        values = [getattr(each, "value", each) for each in arguments]
        if name == "cuGetErrorName":
            arguments[1]._obj.value = b"CUDA_ERROR_INVALID_VALUE"
            assert values[0] == INVALID
        elif name == "hipGraphInstantiateWithFlags":
            arguments[0]._obj.value = EXECUTABLE
            assert values[1:] == [GRAPH, 0]
        elif name == "hipGraphNodeSetEnabled":
            executable, node, enabled = values
            assert (executable, enabled) == (EXECUTABLE, 0)
            self.disabled.add(node)
        elif name == "hipGraphNodeGetEnabled":
            arguments[2]._obj.value = values[1] not in self.disabled
            assert isinstance(arguments[2]._obj, ctypes.c_uint)
        else:
            known = {"hipGraphUpload": [EXECUTABLE, STREAM]}
            assert values == known.get(name, [EXECUTABLE])
        return 0
