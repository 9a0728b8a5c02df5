from pathlib import Path

from layerscope.trace import TraceNote
from tests.ingest.databases import nsys_file, read
from tests.ingest.test_nsys import COPIES, KERNELS, kernel, pid

NODES = "CUDA_GRAPH_NODE_EVENTS"


def node(number: int, original: int | None, process: int = 9) -> dict[str, int | None]:
    """The creation of a node, by itself or as a clone."""
    return {
        "start": 1,
        "end": 1,
        "globalTid": pid(process) + 1,
        "graphNodeId": number,
        "originalGraphNodeId": original,
    }


def test_nodes_are_the_same_in_every_replay(tmp_path: Path) -> None:
    """A node keeps its number; 0 is no graph; the graph is told, or the upper half."""
    path = nsys_file(
        tmp_path / "a.sqlite",
        {
            KERNELS: [
                kernel(10, 11, graphNodeId=(5 << 32) + 1, graphId=6),
                kernel(11, 12, graphNodeId=(5 << 32) + 2, graphId=None),
                kernel(12, 13, graphNodeId=3, graphId=None),
                kernel(13, 14, graphNodeId=0, graphId=0),
                kernel(20, 21, graphNodeId=(5 << 32) + 1, graphId=6),
            ],
            COPIES: [
                {"start": 30, "end": 31, "copyKind": 8, "graphNodeId": (5 << 32) + 9}
            ],
        },
    )
    trace = read(path)
    assert trace.kernels.select("graph", "graph_node").rows() == [
        (6, (5 << 32) + 1),
        (5, (5 << 32) + 2),
        (None, 3),
        (None, None),
        (6, (5 << 32) + 1),
        (5, (5 << 32) + 9),
    ]
    assert trace.notes == ()


def test_clones_are_led_back_to_what_was_captured(tmp_path: Path) -> None:
    """A node of an executable graph has the number of the node that was captured."""
    path = nsys_file(
        tmp_path / "a.sqlite",
        {
            KERNELS: [
                kernel(10, 11, graphNodeId=30, graphId=3),
                kernel(11, 12, graphNodeId=31, graphId=3),
                kernel(12, 13, graphNodeId=30, graphId=3, globalPid=pid(8)),
                kernel(13, 14, graphNodeId=40, graphId=4),
            ],
            NODES: [
                *(node(10, None), node(20, 10), node(30, 20)),
                node(31, 21),
                node(30, 77, process=8),
                *(node(40, 10), node(40, 11)),
            ],
        },
    )
    assert read(path).kernels.select("process", "graph", "graph_node").rows() == [
        (9, 3, 10),
        (9, 3, 21),
        (8, 3, 77),
        (9, 4, 40),
    ]


def test_clones_in_a_circle_end(tmp_path: Path) -> None:
    """Clones of each other, which only damage makes, do not hold the reader."""
    path = nsys_file(
        tmp_path / "a.sqlite",
        {
            KERNELS: [kernel(10, 11, graphNodeId=1, graphId=3)],
            NODES: [node(1, 2), node(2, 1)],
        },
    )
    trace = read(path)
    assert trace.kernels["graph_node"].item() in {1, 2}
    assert not any(isinstance(each, TraceNote) for each in trace.notes)
