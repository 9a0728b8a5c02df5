import pytest

from layerscope.analyze.graph_replays import (
    launches_without_kernels,
    missing_nodes,
    short_replays,
)
from tests.analyze.placed_kernels import Row, calls, kernel, launched

Launch = tuple[int, str, int, int]


def launch(correlation: int, at_ns: int = 0) -> Launch:
    """A launch of a graph."""
    return correlation, "cudaGraphLaunch", at_ns, at_ns + 5


def replay(start_ns: int, correlation: int, names: str, **fields: int) -> list[Row]:
    """Kernels of 10 ns one after another, a letter each."""
    return [
        kernel(start_ns + 10 * index, 10, name=name, correlation=correlation, **fields)
        for index, name in enumerate(names)
    ]


def nodes(start_ns: int, correlation: int, *ids: int) -> list[Row]:
    """The same, of graph nodes."""
    return [
        kernel(start_ns + 10 * index, 10, correlation=correlation, graph_node=each)
        for index, each in enumerate(ids)
    ]


WHOLE = "abcdefgh" * 5
FULL = replay(0, 1, WHOLE)
AFTER = kernel(2_000, 10, name="sample")


def test_launches_without_kernels() -> None:
    """A launch of a graph counts if nothing in the trace belongs to it."""
    rows = [*replay(0, 1, "ab"), AFTER]
    eager = (3, "cudaLaunchKernel", 0, 5)
    names = calls(launch(1), launch(2, 100), launch(4, -10), launch(5, 9_000), eager)
    assert launches_without_kernels(launched(rows, launch(1)), names) == 1


def test_launches_in_a_trace_without_kernels() -> None:
    """Where there is no kernel at all, every launch of a graph lacks its own."""
    names = calls(launch(1), launch(2))
    assert launches_without_kernels(launched([]), names) == 2


def test_missing_nodes() -> None:
    """Every replay of a graph should run all nodes that any replay ran."""
    rows = [*nodes(0, 1, 1, 2, 3), *nodes(50, 2, 1, 3), *nodes(100, 3, 2, 3)]
    found = launched(rows, *(launch(each) for each in (1, 2, 3)))
    assert missing_nodes(found) == 2


def test_graphs_are_apart() -> None:
    """Nodes of two graphs, by their ids' upper halves or by name, miss nothing."""
    other = [each + (7 << 32) for each in (1, 2)]
    rows = [*nodes(0, 1, 1, 2, 3), *nodes(50, 2, *other)]
    assert missing_nodes(launched(rows, launch(1), launch(2))) == 0


def test_a_node_that_runs_twice() -> None:
    """A node of a loop counts once a replay."""
    rows = [*nodes(0, 1, 1, 2, 2, 2), *nodes(50, 2, 1, 2)]
    assert missing_nodes(launched(rows, launch(1), launch(2))) == 0


@pytest.mark.parametrize(
    ("second", "short"),
    [
        (replay(1_000, 2, WHOLE[:20]), 1),  # 200 ns missing, 800 ns idle after
        (replay(1_000, 2, WHOLE[:39]), 0),  # nearly all: another batch size
        (replay(1_000, 2, "abcx"), 0),  # other kernels: another graph
        (replay(1_000, 2, "bcd"), 0),  # begins otherwise: another graph
        (replay(1_750, 2, WHOLE[:20]), 0),  # no hole into which the rest would fit
    ],
)
def test_short_replays(second: list[Row], short: int) -> None:
    """A replay is short if a like one ran more, and the rest had room unseen."""
    rows = [*FULL, *second, AFTER]
    assert short_replays(launched(rows, launch(1), launch(2))) == short


def test_the_last_piece_of_a_step() -> None:
    """Of pieces of a model the last may be shorter: no next layer begins in it."""
    rows = [
        *replay(0, 1, WHOLE, step=0),
        *replay(500, 2, WHOLE, step=0),
        *replay(1_000, 3, WHOLE[:20], step=0),
        AFTER,
    ]
    found = launched(rows, *(launch(each) for each in (1, 2, 3)))
    assert short_replays(found) == 0


def test_small_graphs() -> None:
    """Graphs of few kernels may begin alike and go on otherwise."""
    rows = [*replay(0, 1, "abcdefgh"), *replay(1_000, 2, "abcd"), AFTER]
    assert short_replays(launched(rows, launch(1), launch(2))) == 0


def test_replays_with_node_ids_are_not_compared_by_name() -> None:
    """Where ids tell what is missing, names are not asked."""
    rows = [*nodes(0, 1, 1, 2, 3, 4), *nodes(200, 2, 1), AFTER]
    assert short_replays(launched(rows, launch(1), launch(2))) == 0
