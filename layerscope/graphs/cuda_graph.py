"""A captured CUDA graph as it is edited, and the calls of the CUDA runtime."""

from collections.abc import Sequence
from typing import Any, Final

import torch
from cuda.bindings import driver, runtime

from layerscope.errors import MeasurementError
from layerscope.graphs.cuda_edges import Edges, driver_library
from layerscope.graphs.own_kernels import check, packed
from layerscope.graphs.probe_kernels import delay_cycles, delay_kernel
from layerscope.graphs.replay import Link

_NO_EXPERIMENT: Final = "this experiment cannot be made"


def call(
    function: Any,  # noqa: ANN401 (untyped bindings)
    *arguments: Any,  # noqa: ANN401
    so: str = "the run cannot go on",
) -> Any:  # noqa: ANN401
    """Call a function of the CUDA runtime or driver and unwrap its result.

    Args:
        function: of either.
        arguments: what it is called with.
        so: what its failure means.

    Returns:
        None, the one value, or the tuple of values after the status.

    Raises:
        MeasurementError: the status is not success; names function and status.
    """
    status, *values = function(*arguments)
    if status.value:
        runtime.cudaGetLastError()  # or what asks for it next would raise it again
        name = getattr(function, "__name__", "CUDA call")
        msg = f"{name} failed with {status.name}; {so}"
        raise MeasurementError(msg)
    if not values:
        return None
    return values[0] if len(values) == 1 else tuple(values)


class CudaGraph:
    """The `GraphDriver` of a graph that was captured."""

    def __init__(self, graph: int, handles: Sequence[int], stream: int) -> None:
        """Take a graph.

        Args:
            graph: ``cudaGraph_t``, which somebody else keeps alive.
            handles: ``cudaGraphNode_t`` of its nodes, in creation order.
            stream: ``cudaStream_t`` that executable graphs will run on.
        """
        self.count = len(handles)
        self._graph = graph
        self._handles = list(handles)
        self._edges = Edges(driver_library(), graph)
        self._stream = stream

    def links(self) -> tuple[Link, ...]:
        """The links that the graph has now."""
        numbers = {handle: number for number, handle in enumerate(self._handles)}
        return self._edges.read(numbers)

    def remove(self, links: Sequence[Link]) -> None:
        """Remove links that are there."""
        self._edges.remove(links, self._handles)

    def add(self, links: Sequence[Link]) -> None:
        """Add links that are not there."""
        self._edges.add(links, self._handles)

    def add_delay(self, delay_ns: int) -> None:
        """Add a kernel of one thread that spins."""
        device = torch.device("cuda", torch.cuda.current_device())
        parameters = driver.CUDA_KERNEL_NODE_PARAMS()
        parameters.func = delay_kernel(device).function
        parameters.gridDimX = parameters.gridDimY = parameters.gridDimZ = 1
        parameters.blockDimX = parameters.blockDimY = parameters.blockDimZ = 1
        parameters.kernelParams = packed([delay_cycles(device, delay_ns)])
        graph = driver.CUgraph(self._graph)
        node = check(driver.cuGraphAddKernelNode(graph, [], 0, parameters))
        self._handles.append(int(node))

    def destroy_delays(self) -> None:
        """Take all delays out of the graph."""
        while len(self._handles) > self.count:
            self._call(runtime.cudaGraphDestroyNode, self._handles[-1])
            self._handles.pop()

    def instantiate(self) -> Any:  # noqa: ANN401 (untyped bindings)
        """``cudaGraphExec_t`` of what the graph is now."""
        return self._call(runtime.cudaGraphInstantiate, self._graph, 0)

    def upload(self, executable: Any) -> None:  # noqa: ANN401
        """Bring the executable graph to the device."""
        self._call(runtime.cudaGraphUpload, executable, self._stream)

    def disable(self, executable: Any, node: int) -> None:  # noqa: ANN401
        """Let a node do nothing."""
        handle = self._handles[node]
        self._call(runtime.cudaGraphNodeSetEnabled, executable, handle, 0)

    def is_enabled(self, executable: Any, node: int) -> bool:  # noqa: ANN401
        """Whether a node does its work."""
        handle = self._handles[node]
        return bool(self._call(runtime.cudaGraphNodeGetEnabled, executable, handle))

    def destroy(self, executable: Any) -> None:  # noqa: ANN401
        """Free the executable graph."""
        self._call(runtime.cudaGraphExecDestroy, executable)

    def _call(self, function: Any, *arguments: Any) -> Any:  # noqa: ANN401
        return call(function, *arguments, so=_NO_EXPERIMENT)
