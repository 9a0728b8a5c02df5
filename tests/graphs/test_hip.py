import pytest

from layerscope.errors import MeasurementError
from layerscope.graphs.driver import instantiate_changed
from layerscope.graphs.edits import Change
from layerscope.graphs.hip import HipGraph
from layerscope.graphs.replay import Link
from tests.graphs.graph_library import EXECUTABLE, GRAPH, STREAM, GraphLibrary
from tests.graphs.handmade_graphs import early, full

HANDLES = [1000, 1001, 1002]
FORK = {(1000, 1001), (1000, 1002)}


def graph(*failing: str) -> tuple[HipGraph, GraphLibrary]:
    """A graph of three nodes, of which two run beside each other, and its library."""
    library = GraphLibrary(*FORK)
    library.failing = set(failing)
    return HipGraph(library, GRAPH, HANDLES, STREAM), library


def test_a_hip_graph_is_serialised_without_a_node_and_restored() -> None:
    """The same edits as on CUDA, by HIP's functions."""
    driver, library = graph()
    links = full((0, 1), (0, 2))
    change = Change(remove=full((0, 2)), add=full((1, 2)), disabled=(1,))
    made = instantiate_changed(driver, links, change)
    assert made.value == EXECUTABLE
    assert library.disabled == {1001}
    assert library.edges == FORK
    assert library.calls == [
        *["hipGraphGetEdges"] * 4,
        "hipGraphRemoveDependencies",
        "hipGraphAddDependencies",
        *["hipGraphGetEdges"] * 2,
        "hipGraphInstantiateWithFlags",
        "hipGraphNodeSetEnabled",
        "hipGraphNodeGetEnabled",
        "hipGraphUpload",
        *["hipGraphGetEdges"] * 2,
        "hipGraphRemoveDependencies",
        "hipGraphAddDependencies",
        *["hipGraphGetEdges"] * 2,
    ]


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        (
            Change(remove=full((0, 1)), add=early((0, 1))),
            "HIP graphs have no programmatic edges",
        ),
        (
            Change(delays=((1, 2000),)),
            "there is no kernel that delays 2000 ns on HIP",
        ),
    ],
)
def test_what_hip_does_not_have_is_refused(change: Change, cause: str) -> None:
    """Programmatic edges and delays; the graph is as it was."""
    driver, library = graph()
    with pytest.raises(MeasurementError) as caught:
        instantiate_changed(driver, full((0, 1), (0, 2)), change)
    assert str(caught.value) == f"{cause}; this experiment cannot be made"
    assert library.edges == FORK


def test_a_hip_graph_that_is_not_instantiated_is_restored() -> None:
    """The function and its status are in the line; what was made is freed."""
    driver, library = graph("hipGraphUpload")
    with pytest.raises(MeasurementError) as caught:
        instantiate_changed(driver, full((0, 1), (0, 2)), Change(add=full((1, 2))))
    assert str(caught.value) == (
        "hipGraphUpload failed with status 1 of HIP; this experiment cannot be made"
    )
    assert library.calls.count("hipGraphExecDestroy") == 1
    assert library.edges == FORK


def test_a_hip_graph_without_edges_has_no_links() -> None:
    """A single node is a graph too."""
    assert HipGraph(GraphLibrary(), GRAPH, [1000], STREAM).links() == ()
    assert HipGraph(GraphLibrary((1000, 1001)), GRAPH, HANDLES, STREAM).links() == (
        Link(0, 1),
    )
