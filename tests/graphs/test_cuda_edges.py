import pytest

from layerscope.errors import MeasurementError
from layerscope.graphs import cuda_edges
from layerscope.graphs.cuda_edges import Edges, node_handles
from layerscope.graphs.replay import Link
from tests.graphs.graph_library import GRAPH, GraphLibrary
from tests.graphs.handmade_graphs import early, full

HANDLES = [1000, 1001, 1 << 47]
NUMBERS = {handle: number for number, handle in enumerate(HANDLES)}


@pytest.mark.parametrize("handles", [[], [1 << 47, 1000, 1001]])
def test_nodes_are_told_in_the_order_of_the_graph(
    handles: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their handles; those of an empty graph are not asked for."""
    library = GraphLibrary()
    library.nodes = handles
    monkeypatch.setattr(cuda_edges, "driver_library", lambda: library)
    assert node_handles(GRAPH) == handles
    assert len(library.calls) == (2 if handles else 1)


def test_edges_are_read_with_their_data() -> None:
    """Type and ports of each, sorted by the creation order of its nodes."""
    library = GraphLibrary(
        (1001, 1 << 47, 1, 0, 1), (1000, 1 << 47, 2, 0, 0), (1000, 1001, 0, 0, 0)
    )
    assert Edges(library, GRAPH).read(NUMBERS) == (
        Link(0, 1),
        Link(0, 2, from_port=2),
        Link.early(1, 2),
    )


def test_a_graph_without_edges_has_no_links() -> None:
    """It is asked for their number only."""
    library = GraphLibrary()
    assert Edges(library, GRAPH).read(NUMBERS) == ()
    assert library.calls == ["cuGraphGetEdges_v2"]


def test_edges_are_removed_and_added_with_their_data() -> None:
    """What is written is what is read; a call for each kind of edge, none for none."""
    library = GraphLibrary((1000, 1001, 1, 0, 1))
    edges = Edges(library, GRAPH)
    edges.remove(early((0, 1)), HANDLES)
    edges.add([*full((0, 1)), Link(1, 2, programmatic=True, from_port=2)], HANDLES)
    edges.add([], HANDLES)
    assert library.edges == {(1000, 1001, 0, 0, 0), (1001, 1 << 47, 2, 0, 1)}
    assert library.calls == [
        "cuGraphRemoveDependencies_v2",
        "cuGraphAddDependencies_v2",
        "cuGraphAddDependencies_v2",
    ]


@pytest.mark.parametrize("links", [full((0, 1)), early((1, 2))])
def test_an_edge_that_is_not_there_as_given_cannot_be_removed(
    links: tuple[Link, ...],
) -> None:
    """The driver's name of the error is in the line."""
    edges = Edges(GraphLibrary((1000, 1001, 1, 0, 1)), GRAPH)
    with pytest.raises(MeasurementError) as caught:
        edges.remove(links, HANDLES)
    assert str(caught.value) == (
        "cuGraphRemoveDependencies_v2 failed with CUDA_ERROR_INVALID_VALUE; "
        "edges of this graph cannot be used"
    )


def test_a_driver_without_edge_data_is_refused() -> None:
    """Its functions are newer than it is: a line, and no error of ctypes."""
    with pytest.raises(MeasurementError) as caught:
        Edges(object(), GRAPH).read(NUMBERS)
    assert str(caught.value) == (
        "the driver has no cuGraphGetEdges_v2; install one for CUDA 12.3 or newer"
    )
