import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.analyze.stream_overlaps import (
    OverlapKind,
    overlap_edges,
    stream_overlaps,
)
from layerscope.analyze.trace_communication import communication
from tests.analyze.placed_kernels import Row, kernel, launched

H100, A100, MI300 = {0: "sm_90"}, {0: "sm_80"}, {0: "gfx942"}
REPLAY = (9, "cudaGraphLaunch", -50, -40)


def kinds(
    rows: list[Row], *launches: tuple[int, str, int, int], on: dict[int, str]
) -> list[tuple[int, str | None]]:
    """Overlap and kind of every kernel with one before it on its stream."""
    found = stream_overlaps(launched(rows, *launches), on)
    return found.select("overlap_ns", "kind").rows()


def chain(*starts: int, **fields: int) -> list[Row]:
    """Kernels of 1,000 ns each."""
    return [kernel(start, 1_000, **fields) for start in starts]


def test_a_chain_of_eager_kernels() -> None:
    """Kernels of one stream that reach into the next are consistent with PDL."""
    found = kinds(chain(0, 800, 1_800, 2_700), on=H100)
    assert found == [
        (200, OverlapKind.PROGRAMMATIC),
        (0, None),
        (100, OverlapKind.PROGRAMMATIC),
    ]


def test_devices_without_pdl() -> None:
    """Where PDL does not exist, or no one knows, an eager overlap is unknown."""
    for device in (A100, MI300, {}):
        assert kinds(chain(0, 800), on=device) == [(200, OverlapKind.UNKNOWN)]


def test_a_replay_that_is_a_chain() -> None:
    """Nodes with ids none of which is inside another may be programmatic."""
    rows = [
        kernel(start, 1_000, correlation=9, graph_node=node)
        for node, start in enumerate((0, 800, 1_700))
    ]
    found = kinds(rows, REPLAY, on=H100)
    assert [kind for _, kind in found] == [OverlapKind.PROGRAMMATIC] * 2


def test_branches_that_take_turns() -> None:
    """Two branches whose kernels begin in turn look like a chain of early starts.

    Of a stream each, one runs a, c, e and the other b, d; a graph without ids of nodes
    shows all of them on the stream of its launch.
    """
    rows = [
        kernel(start, 1_000, name=name, correlation=9)
        for name, start in zip("abcde", (0, 500, 1_000, 1_500, 2_000), strict=True)
    ]
    either = "unknown: PDL or branches of a graph"
    assert kinds(rows, REPLAY, on=H100) == [(500, either)] * 4
    assert kinds(rows, on=H100) == [(500, OverlapKind.PROGRAMMATIC)] * 4


def test_a_replay_on_a_device_without_pdl() -> None:
    """There, kernels of a replay that overlap are branches of the graph."""
    found = kinds(chain(0, 800, correlation=9), REPLAY, on=A100)
    assert found == [(200, OverlapKind.BRANCHES)]


def test_a_replay_with_a_kernel_inside_another() -> None:
    """A nested kernel is a branch; what else overlaps there may be either."""
    rows = [
        *chain(0, correlation=9),
        kernel(100, 500, correlation=9),
        *chain(2_000, 2_900, correlation=9),
    ]
    assert kinds(rows, REPLAY, on=H100) == [
        (500, OverlapKind.BRANCHES),
        (0, None),
        (100, OverlapKind.EITHER),
    ]


def test_three_at_a_time() -> None:
    """Where a kernel overlaps one that is not its neighbour, the graph has branches."""
    rows = [
        kernel(0, 3_000, correlation=9),
        kernel(100, 500, correlation=9),
        kernel(2_500, 1_000, correlation=9),
    ]
    found = kinds(rows, REPLAY, on=H100)
    assert found == [(500, OverlapKind.BRANCHES), (500, OverlapKind.BRANCHES)]


def test_nested_eager_kernels() -> None:
    """Without a graph, a kernel inside another is not explained."""
    rows = [kernel(0, 1_000), kernel(100, 500)]
    assert kinds(rows, on=H100) == [(500, OverlapKind.UNKNOWN)]


def test_an_eager_kernel_after_a_replay() -> None:
    """What a replay and the kernel after it do is not told apart."""
    rows = [*chain(0, correlation=9), *chain(800)]
    assert kinds(rows, REPLAY, on=H100) == [(200, OverlapKind.UNKNOWN)]


def test_other_streams_are_other_chains() -> None:
    """Kernels of two streams, contexts or processes are no pair."""
    rows = [
        *chain(0),
        *chain(100, stream=8),
        *chain(200, context=2),
        *chain(300, process=5),
    ]
    assert kinds(rows, on=H100) == []


def test_a_file_without_streams() -> None:
    """Where streams are not told, nobody knows what follows what."""
    found = kinds(chain(0, 800, stream=None), on=H100)  # type: ignore[arg-type]
    assert found == [(200, OverlapKind.UNKNOWN)]


def test_the_resolution_of_time_stamps() -> None:
    """A tiny overlap counts only if its pair overlaps at least half of the time."""
    assert kinds(chain(0, 940, 1_940, 2_940), on=H100) == [
        (60, OverlapKind.UNKNOWN),
        (0, None),
        (0, None),
    ]
    assert kinds(chain(0, 940, 1_940), on=H100)[0] == (60, OverlapKind.PROGRAMMATIC)


def test_edges() -> None:
    """Overlaps are counted by producer and consumer, of how often these follow."""
    rows = [
        kernel(0, 1_000, name="gate", region="moe"),
        kernel(900, 1_000, name="down", region="moe"),
        kernel(3_000, 1_000, name="gate", region="moe"),
        kernel(3_700, 1_000, name="down", region="moe"),
        kernel(5_000, 1_000, name="gate", region="moe"),
        kernel(6_000, 1_000, name="down", region="moe"),
    ]
    expected = pl.DataFrame(
        {
            "producer": ["gate"],
            "producer_region": ["moe"],
            "name": ["down"],
            "region": ["moe"],
            "kind": ["consistent with PDL"],
            "overlapping": [2],
            "nested": [0],
            "overlap_ns": [400],
            "median_ns": [200.0],
            "largest_ns": [300],
            "of": [3],
        }
    )
    found = overlap_edges(stream_overlaps(launched(rows), H100))
    assert_frame_equal(found, expected)


times = st.integers(min_value=0, max_value=200)


@given(
    st.lists(
        st.builds(
            lambda start, duration, stream: kernel(start, duration, stream=stream),
            times,
            times,
            st.sampled_from([7, 8, None]),
        ),
        min_size=1,
        max_size=25,
    )
)
def test_overlaps_add_up(rows: list[Row]) -> None:
    """Overlaps of streams are sums less unions; with those across, all that is hidden.

    Every overlap has a kind, and only an overlap has one.
    """
    swept = launched(rows)
    found = stream_overlaps(swept, H100)
    told = communication(swept)
    assert int(found["overlap_ns"].sum()) == told.same_stream_ns
    hidden = int(swept["hidden_ns"].sum())
    assert told.same_stream_ns + told.cross_stream_ns == hidden
    has_kind = pl.col("kind").is_not_null()
    assert found.filter(has_kind != (pl.col("overlap_ns") > 0)).is_empty()
