from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TypeAlias

import pytest

from layerscope.doctor import graph_features
from layerscope.doctor.graph_features import FEATURES, Feature, Tiny
from layerscope.graphs.cuda_edges import Edges
from layerscope.report.diagnosis import Finding, State
from tests.graphs.graph_library import GRAPH, GraphLibrary

ROW = ((1000, 1001, 0, 0, 0), (1001, 1002, 0, 0, 0))
"""The edges of three kernels in a row, and their data."""

Answer: TypeAlias = tuple[object, ...]


@dataclass
class FakeRuntime:
    """The graph calls of ``cuda.bindings.runtime`` on + 1, × 2, + 1, in plain Python.

    A test may let a call fail, or ignore the switching of nodes.
    """

    failing: str = ""
    is_deaf: bool = False
    disabled: set[int] = field(default_factory=set)
    executables: int = 0

    def _answer(self, name: str, *values: object) -> Answer:
        failed = name == self.failing
        status = SimpleNamespace(value=int(failed), name="cudaErrorNotSupported")
        return (status, *values)

    def cudaGraphGetNodes(self, _: str, count: int = 0) -> Answer:  # noqa: N802
        """Three nodes; asked for none, how many there are."""
        nodes = [1000, 1001, 1002] if count else []
        return self._answer("cudaGraphGetNodes", nodes, 3)

    def cudaGraphInstantiate(self, *_: object) -> Answer:  # noqa: N802
        """An executable graph with all nodes on."""
        self.executables += self.failing != "cudaGraphInstantiate"
        self.disabled.clear()
        return self._answer("cudaGraphInstantiate", "exec")

    def cudaGraphExecDestroy(self, _: str) -> Answer:  # noqa: N802
        """Forget it."""
        self.executables -= 1
        return self._answer("cudaGraphExecDestroy")

    def cudaGraphNodeSetEnabled(self, _: str, node: int, on: int) -> Answer:  # noqa: N802
        """Switch a node."""
        if not self.is_deaf:
            (self.disabled.discard if on else self.disabled.add)(node)
        return self._answer("cudaGraphNodeSetEnabled")

    def cudaGraphNodeGetEnabled(self, _: str, node: int) -> Answer:  # noqa: N802
        """Whether a node is on."""
        return self._answer("cudaGraphNodeGetEnabled", int(node not in self.disabled))

    def launch(self, _: str) -> int:
        """Run the nodes that are on."""
        value = 0
        for node, (factor, summand) in enumerate(((1, 1), (2, 0), (1, 1)), 1000):
            if node not in self.disabled:
                value = value * factor + summand
        return value


class DeafLibrary(GraphLibrary):
    """A driver that says that it edits edges, and does not."""

    def _write(self, *_: object) -> int:
        return 0


def tried(
    topic: str, runtime: FakeRuntime, library: GraphLibrary | None = None
) -> Finding:
    """What is found of one feature."""
    feature = next(item for item in FEATURES if item.topic == topic)
    edges = Edges(library or GraphLibrary(*ROW), GRAPH)
    tiny = Tiny(runtime, "graph", edges, runtime.launch, None)
    found = graph_features.tried(feature, lambda: tiny)
    assert runtime.executables == 0
    return found


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.topic)
def test_what_works_has_every_feature(feature: Feature) -> None:
    """Nothing is left behind: the graph has its edges, and no executable is open."""
    library = GraphLibrary(*ROW)
    found = tried(feature.topic, FakeRuntime(), library)
    assert (found.state, found.meaning, found.fix) == (State.OK, "", "")
    assert library.edges == set(ROW)


@pytest.mark.parametrize(
    ("topic", "call"),
    [
        ("keep_graph", "cudaGraphInstantiate"),
        ("node enable", "cudaGraphNodeSetEnabled"),
        ("node enable", "cudaGraphNodeGetEnabled"),
    ],
)
def test_a_call_of_the_runtime_that_fails_is_named_with_its_status(
    topic: str, call: str
) -> None:
    """And says what is lost and how to get it."""
    feature = next(item for item in FEATURES if item.topic == topic)
    assert tried(topic, FakeRuntime(failing=call)) == Finding(
        topic,
        State.MISSING,
        f"{call} fails with cudaErrorNotSupported",
        feature.meaning,
        feature.fix,
        blocks=topic == "keep_graph",
    )


@pytest.mark.parametrize(
    ("topic", "call"),
    [
        ("edge data", "cuGraphGetEdges_v2"),
        ("edge removal", "cuGraphRemoveDependencies_v2"),
        ("edge removal", "cuGraphAddDependencies_v2"),
    ],
)
def test_a_call_of_the_driver_that_fails_is_named_with_its_status(
    topic: str, call: str
) -> None:
    """Edges that cannot be read let no capture be made; others let none be edited."""
    feature = next(item for item in FEATURES if item.topic == topic)
    library = GraphLibrary(*ROW)
    library.failing.add(call)
    assert tried(topic, FakeRuntime(), library) == Finding(
        topic,
        State.MISSING,
        f"{call} failed with CUDA_ERROR_INVALID_VALUE; edges of this graph cannot be "
        "used",
        feature.meaning,
        feature.fix,
        blocks=topic == "edge data",
    )


def test_edges_with_data_of_others_are_not_believed() -> None:
    """Torch's kernels follow each other by full edges."""
    library = GraphLibrary(ROW[0], (1001, 1002, 1, 0, 1))
    found = tried("edge data", FakeRuntime(), library)
    assert (found.state, found.blocks) == (State.MISSING, True)
    assert found.found == "full edges among them: 1, where 2 was expected"


def test_success_without_an_effect_is_not_believed() -> None:
    """A call that does nothing and says success is found out."""
    found = tried("node enable", FakeRuntime(is_deaf=True))
    assert found.found == "the state of a disabled node: 1, where 0 was expected"
    found = tried("edge removal", FakeRuntime(), DeafLibrary(*ROW))
    assert found.found == ("full edges after one was removed: 2, where 1 was expected")


@pytest.mark.parametrize(
    "error",
    [
        TypeError("CUDAGraph() takes no keyword 'keep_graph'"),
        RuntimeError("CUDAGraph() takes no keyword 'keep_graph'\nadvice"),
    ],
)
def test_a_torch_that_cannot_keep_graphs_blocks(error: Exception) -> None:
    """The capture of a study goes the same way."""

    def fail() -> Tiny:
        raise error

    found = graph_features.tried(FEATURES[0], fail)
    assert (found.topic, found.blocks) == ("keep_graph", True)
    assert found.found == "CUDAGraph() takes no keyword 'keep_graph'"


@pytest.mark.parametrize(
    ("version", "state"),
    [("13.0.3", State.OK), ("12.9.1", State.LIMITED), ("", State.MISSING)],
)
def test_bindings_of_cuda_13_are_wanted(
    monkeypatch: pytest.MonkeyPatch, version: str, state: State
) -> None:
    """Without them torch replays; nothing blocks."""
    monkeypatch.setattr(graph_features, "installed", lambda _: version)
    found = graph_features.bindings()
    assert (found.state, found.blocks) == (state, False)
    assert found.found == (version or "not installed")


@pytest.mark.parametrize(
    ("architecture", "state"),
    [
        ("sm_89", State.NOT_APPLICABLE),
        ("sm_90", State.OK),
        ("sm_120", State.OK),
    ],
)
def test_kernels_overlap_in_a_stream_from_hopper_on(
    architecture: str, state: State
) -> None:
    """120 is above 90."""
    assert graph_features.programmatic(architecture).state is state
