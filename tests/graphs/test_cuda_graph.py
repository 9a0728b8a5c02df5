from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from cuda.bindings import driver as bindings
from cuda.bindings import runtime as real

from layerscope.errors import MeasurementError
from layerscope.graphs import cuda, cuda_graph
from layerscope.graphs.cuda_graph import CudaGraph, call
from layerscope.graphs.edits import Change
from layerscope.graphs.replay import Editable, Link
from tests.graphs.graph_library import GRAPH, STREAM, GraphLibrary
from tests.graphs.handmade_graphs import early, full, node, row

HANDLES = [100, 101, 102]
DELAY = 500
"""The handle of the node that is added."""

EDGES = {(100, 101, 1, 0, 1), (101, 102, 1, 0, 1)}


class Runtime:
    """The functions of the runtime's and the driver's bindings that are called."""

    def __init__(self, library: GraphLibrary) -> None:
        self.library = library
        self.disabled: dict[int, set[int]] = {}
        self.destroyed: list[int] = []
        self.calls: list[tuple[Any, ...]] = []
        self.failing: set[str] = set()
        self.cudaError_t = real.cudaError_t
        self.cudaGraphInstantiate = self._function("cudaGraphInstantiate", self._make)
        self.cudaGetLastError = self._function("cudaGetLastError")
        self.cudaGraphUpload = self._function("cudaGraphUpload")
        self.cudaGraphLaunch = self._function("cudaGraphLaunch")
        self.cudaGraphExecDestroy = self._function(
            "cudaGraphExecDestroy", self.destroyed.append
        )
        self.cudaGraphNodeSetEnabled = self._function(
            "cudaGraphNodeSetEnabled", self._disable
        )
        self.cudaGraphNodeGetEnabled = self._function(
            "cudaGraphNodeGetEnabled",
            lambda made, handle: int(handle not in self.disabled[made]),
        )
        self.cudaGraphDestroyNode = self._function("cudaGraphDestroyNode", self._sever)

    def _function(
        self, name: str, act: Callable[..., object] = lambda *_: None
    ) -> Callable[..., tuple[Any, ...]]:
        def function(*arguments: Any) -> tuple[Any, ...]:  # noqa: ANN401
            self.calls.append((name, *arguments))
            if name in self.failing:
                return (self.cudaError_t.cudaErrorInvalidValue, None)
            value = act(*arguments)
            success = self.cudaError_t.cudaSuccess
            return (success,) if value is None else (success, value)

        function.__name__ = name
        return function

    def _make(self, graph: int, flags: int) -> int:
        assert (graph, flags) == (GRAPH, 0)
        made = 900 + len(self.disabled)
        self.disabled[made] = set()
        return made

    def _disable(self, made: int, handle: int, enabled: int) -> None:
        assert enabled == 0
        self.disabled[made].add(handle)

    def _sever(self, handle: int) -> None:
        edges = self.library.edges
        self.library.edges = {edge for edge in edges if handle not in edge[:2]}


@pytest.fixture
def library() -> GraphLibrary:
    return GraphLibrary(*EDGES)


@pytest.fixture
def runtime(library: GraphLibrary, monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """The runtime in memory, also where kernels are added."""
    fake = Runtime(library)
    monkeypatch.setattr(cuda_graph, "driver_library", lambda: library)
    monkeypatch.setattr(cuda_graph, "runtime", fake)
    monkeypatch.setattr(cuda, "runtime", fake)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    function = bindings.CUfunction(5)
    monkeypatch.setattr(
        cuda_graph, "delay_kernel", lambda _: SimpleNamespace(function=function)
    )

    monkeypatch.setattr(cuda_graph, "delay_cycles", lambda _, delay_ns: 2 * delay_ns)

    def add(graph: Any, before: list[int], count: int, parameters: Any) -> Any:  # noqa: ANN401
        for axis in "XYZ":
            assert getattr(parameters, f"gridDim{axis}") == 1
            assert getattr(parameters, f"blockDim{axis}") == 1
        assert (int(graph), before, count) == (GRAPH, [], 0)
        assert int(parameters.func) == int(function)
        assert parameters.kernelParams
        return (bindings.CUresult.CUDA_SUCCESS, DELAY)

    monkeypatch.setattr(bindings, "cuGraphAddKernelNode", add)
    return fake


@pytest.fixture
def replay(runtime: Runtime) -> cuda.GraphReplay:
    """A programmatic chain of three kernels."""
    nodes = tuple(node(index) for index in range(3))
    driver = CudaGraph(GRAPH, HANDLES, STREAM)
    captured = cuda._Captured(lambda _: None, 1, nodes, driver.links(), driver, STREAM)
    graph = SimpleNamespace(
        raw_cuda_graph=lambda: GRAPH, reset=lambda: runtime.calls.append(("reset",))
    )
    return cuda.GraphReplay(graph, captured)  # type: ignore[arg-type]


def test_a_captured_graph_can_be_edited(
    replay: cuda.GraphReplay, runtime: Runtime
) -> None:
    """It is instantiated and uploaded as captured; its variants cannot be edited."""
    assert isinstance(replay, Editable)
    assert replay.links == early(*row(3))
    assert replay.edges == ((0, 1), (1, 2))
    assert runtime.calls == [
        ("cudaGraphInstantiate", GRAPH, 0),
        ("cudaGraphUpload", 900, STREAM),
    ]
    assert not isinstance(replay.variant(Change()), Editable)


def test_a_variant_has_the_change_and_launches_on_the_same_stream(
    replay: cuda.GraphReplay, runtime: Runtime, library: GraphLibrary
) -> None:
    """Disabled nodes are not its nodes, since they leave no record."""
    change = Change(remove=early((1, 2)), add=full((1, 2)), disabled=(1,))
    variant = replay.variant(change)
    assert variant.links == (Link.early(0, 1), Link(1, 2))
    assert [each.index for each in variant.nodes] == [0, 2]
    assert (variant.passes, variant.body) == (replay.passes, replay.body)
    assert runtime.disabled == {900: set(), 901: {101}}
    variant.launch()
    assert runtime.calls[-1] == ("cudaGraphLaunch", 901, STREAM)
    assert library.edges == EDGES


def test_a_delay_is_added_and_destroyed_again(
    replay: cuda.GraphReplay, runtime: Runtime, library: GraphLibrary
) -> None:
    """The graph that is instantiated has it; the captured one has the edges it had."""
    seen: list[set[tuple[int, ...]]] = []
    make = runtime.cudaGraphInstantiate

    def instantiate(*arguments: int) -> tuple[Any, ...]:
        seen.append(set(library.edges))
        return make(*arguments)

    runtime.cudaGraphInstantiate = instantiate
    variant = replay.variant(Change(delays=((2, 2000),)))
    assert seen == [{(100, 101, 1, 0, 1), (101, DELAY, 1, 0, 1), (DELAY, 102, 1, 0, 1)}]
    assert library.edges == EDGES
    assert ("cudaGraphDestroyNode", DELAY) in runtime.calls
    assert [each.index for each in variant.nodes] == [0, 1, 2]
    assert replay.variant(Change(delays=((1, 0),))).links == early(*row(3))


def test_a_graph_that_is_not_instantiated_is_one_line(
    replay: cuda.GraphReplay, runtime: Runtime, library: GraphLibrary
) -> None:
    """It names function and status, and the captured graph still launches."""
    runtime.failing = {"cudaGraphInstantiate"}
    with pytest.raises(MeasurementError) as caught:
        replay.variant(Change(remove=early((0, 1)), add=full((0, 1))))
    assert str(caught.value) == (
        "cudaGraphInstantiate failed with cudaErrorInvalidValue; this experiment "
        "cannot be made"
    )
    assert library.edges == EDGES
    replay.launch()
    assert runtime.calls[-1] == ("cudaGraphLaunch", 900, STREAM)


def test_closing_frees_every_executable_graph_once(
    replay: cuda.GraphReplay, runtime: Runtime
) -> None:
    """Variants first, then the captured graph, in whatever order they are closed."""
    first, second = replay.variant(Change()), replay.variant(Change(disabled=(0,)))
    first.close()
    replay.close()
    for each in (first, second, replay):
        each.close()
    assert runtime.destroyed == [901, 902, 900]
    assert runtime.calls.count(("reset",)) == 1
    assert runtime.calls[-1] == ("reset",)


def test_edited_graphs_that_nobody_keeps_are_freed_with_the_captured_one(
    replay: cuda.GraphReplay, runtime: Runtime
) -> None:
    """An edit may fail at one length after others were made."""
    replay.variant(Change())
    replay.close()
    assert runtime.destroyed == [901, 900]


def test_a_failed_call_says_what_it_means(runtime: Runtime) -> None:
    """By default, that nothing more can be done here; the runtime forgets it."""
    runtime.failing = {"cudaGraphLaunch"}
    with pytest.raises(MeasurementError) as caught:
        call(runtime.cudaGraphLaunch, 1, 2)
    assert runtime.calls[-1] == ("cudaGetLastError",)
    assert str(caught.value) == (
        "cudaGraphLaunch failed with cudaErrorInvalidValue; the run cannot go on"
    )
