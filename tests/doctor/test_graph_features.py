from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TypeAlias

import pytest

from layerscope.doctor import graph_features
from layerscope.doctor.graph_features import FEATURES, Feature, Tiny
from layerscope.report.diagnosis import Finding, State

Edge: TypeAlias = tuple[int, int]
Answer: TypeAlias = tuple[object, ...]


@dataclass
class FakeRuntime:
    """The graph calls of ``cuda.bindings.runtime`` on + 1, × 2, + 1, in plain Python.

    A test may let a call fail, read wrong edge data, or ignore the switching of nodes.
    """

    failing: str = ""
    edge_type: int = 0
    is_deaf: bool = False
    edges: list[Edge] = field(default_factory=lambda: [(0, 1), (1, 2)])
    disabled: set[int] = field(default_factory=set)
    executables: int = 0

    def _answer(self, name: str, *values: object) -> Answer:
        failed = name == self.failing
        status = SimpleNamespace(value=int(failed), name="cudaErrorNotSupported")
        return (status, *values)

    def cudaGraphGetNodes(self, _: str, count: int = 0) -> Answer:  # noqa: N802
        """Nodes 0, 1, 2; asked for none, how many there are."""
        return self._answer("cudaGraphGetNodes", [0, 1, 2] if count else [], 3)

    def cudaGraphGetEdges(self, _: str, count: int = 0) -> Answer:  # noqa: N802
        """Sources, targets, edge data; asked for none, how many there are."""
        sources, targets = ([edge[i] for edge in self.edges] for i in (0, 1))
        plain = SimpleNamespace(from_port=0, to_port=0, type=self.edge_type)
        lists = (sources, targets, [plain] * count) if count else ([], [], [])
        return self._answer("cudaGraphGetEdges", *lists, len(self.edges))

    def cudaGraphInstantiate(self, *_: object) -> Answer:  # noqa: N802
        """An executable graph with all nodes on."""
        self.executables += 1
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

    def cudaGraphRemoveDependencies(  # noqa: N802
        self, _: str, sources: list[int], targets: list[int], *__: object
    ) -> Answer:
        """Take edges away."""
        if not self.is_deaf:
            for edge in zip(sources, targets, strict=True):
                self.edges.remove(edge)
        return self._answer("cudaGraphRemoveDependencies")

    def cudaGraphAddDependencies(  # noqa: N802
        self, _: str, sources: list[int], targets: list[int], *__: object
    ) -> Answer:
        """Add edges."""
        self.edges += zip(sources, targets, strict=True)
        return self._answer("cudaGraphAddDependencies")

    def launch(self, _: str) -> int:
        """Run the nodes that are on."""
        value = 0
        for node, (factor, summand) in enumerate(((1, 1), (2, 0), (1, 1))):
            if node not in self.disabled:
                value = value * factor + summand
        return value


def tried(topic: str, runtime: FakeRuntime) -> Finding:
    """What is found of one feature."""
    feature = next(item for item in FEATURES if item.topic == topic)
    tiny = Tiny(runtime, "graph", runtime.launch, None)
    found = graph_features.tried(feature, lambda: tiny)
    assert runtime.executables == 0
    return found


@pytest.mark.parametrize("feature", FEATURES, ids=lambda feature: feature.topic)
def test_a_runtime_that_works_has_every_feature(feature: Feature) -> None:
    """Nothing is left behind: the graph has its edges, and no executable is open."""
    runtime = FakeRuntime()
    found = tried(feature.topic, runtime)
    assert (found.state, found.meaning, found.fix) == (State.OK, "", "")
    assert sorted(runtime.edges) == [(0, 1), (1, 2)]


@pytest.mark.parametrize(
    ("topic", "call"),
    [
        ("keep_graph", "cudaGraphInstantiate"),
        ("edge data", "cudaGraphGetEdges"),
        ("node enable", "cudaGraphNodeSetEnabled"),
        ("node enable", "cudaGraphNodeGetEnabled"),
        ("edge removal", "cudaGraphRemoveDependencies"),
        ("edge removal", "cudaGraphAddDependencies"),
    ],
)
def test_a_call_that_fails_is_named_with_its_status(topic: str, call: str) -> None:
    """And says what is lost and how to get it."""
    runtime = FakeRuntime(failing=call)
    feature = next(item for item in FEATURES if item.topic == topic)
    tiny = Tiny(runtime, "graph", runtime.launch, None)
    assert graph_features.tried(feature, lambda: tiny) == Finding(
        topic,
        State.MISSING,
        f"{call} fails with cudaErrorNotSupported",
        feature.meaning,
        feature.fix,
        blocks=topic == "keep_graph",
    )


def test_edge_data_that_is_not_zero_was_freed_before_it_was_read() -> None:
    """Some bindings do so; programmatic edges would be invented."""
    found = tried("edge data", FakeRuntime(edge_type=113))
    assert found.state is State.MISSING
    assert found.found == (
        "data of plain edges: [(0, 0, 113), (0, 0, 113)], "
        "where [(0, 0, 0), (0, 0, 0)] was expected"
    )
    assert found.fix == "pip install 'cuda-bindings>=13.3,<14'"


def test_success_without_an_effect_is_not_believed() -> None:
    """A call that does nothing and says success is found out."""
    found = tried("node enable", FakeRuntime(is_deaf=True))
    assert found.found == "the state of a disabled node: 1, where 0 was expected"
    found = tried("edge removal", FakeRuntime(is_deaf=True))
    assert found.found == "edges after one was removed: 2, where 1 was expected"


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
