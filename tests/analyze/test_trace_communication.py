import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.analyze.trace_communication import (
    Communication,
    communication,
    is_communication,
    with_exposed,
)
from layerscope.analyze.trace_shares import swept_kernels
from tests.analyze.placed_kernels import Row, kernel, placed


def told(*rows: Row) -> Communication:
    """What is said of these kernels."""
    return communication(swept_kernels(placed(rows)))


def reduce(start_ns: int, duration_ns: int, stream: int = 20) -> Row:
    """An all-reduce of NCCL."""
    return kernel(start_ns, duration_ns, stream=stream, name="ncclDevKernel_AllReduce")


@pytest.mark.parametrize(
    ("name", "talks"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", True),
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>", True),
        ("multimem_all_reduce_kernel", True),
        ("rcclGenericKernel", True),
        ("void at::native::reduce_kernel<512, 1>", False),
        ("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", False),
    ],
)
def test_names_of_communication(name: str, talks: bool) -> None:  # noqa: FBT001
    """Collectives are known by their names, those of other libraries too."""
    found = placed([kernel(0, 1, name=name)]).select(is_communication()).item()
    assert found is talks


def test_what_the_file_tells_of_collectives_counts() -> None:
    """A kernel whose collective is told is communication whatever its name."""
    frame = placed([kernel(0, 1, collective="allreduce")])
    assert frame.select(is_communication()).item() is True


def test_computation_on_another_stream_hides_communication() -> None:
    """What is hidden is counted once, also beside two streams of computation."""
    found = told(
        reduce(0, 100), kernel(20, 30), kernel(40, 20, stream=8), kernel(90, 50)
    )
    assert found == Communication(
        kernels=1,
        busy_ns=100,
        hidden_ns=40 + 10,
        cross_stream_ns=(100 + 80 + 20) - 140,
        same_stream_ns=0,
    )


def test_neighbours_on_one_stream_hide_nothing() -> None:
    """Kernels of one stream that overlap are no overlap of computation."""
    found = told(kernel(0, 100), reduce(80, 100, stream=7), kernel(150, 100))
    assert found == Communication(
        kernels=1, busy_ns=100, hidden_ns=0, cross_stream_ns=0, same_stream_ns=50
    )


def test_copies_are_neither() -> None:
    """A copy beside an all-reduce hides nothing of it."""
    assert told(reduce(0, 100), kernel(10, 50, kind="copy")).hidden_ns == 0


def test_exposed_communication() -> None:
    """Time that communication has for having begun first is hidden all the same."""
    rows = [
        reduce(0, 100),
        kernel(30, 20),
        reduce(90, 60, stream=21),
        kernel(140, 30),
        kernel(150, 10, stream=20),
    ]
    found = with_exposed(swept_kernels(placed(rows)))
    # of 0 to 100 but 30 to 50, of 100 to 150 but 140 to 150, and nothing else
    assert found["exposed_ns"].to_list() == [80, 0, 40, 0, 0]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 60),
            st.integers(0, 40),
            st.sampled_from([7, 8, 20]),
            st.booleans(),
        ),
        min_size=1,
        max_size=15,
    )
)
def test_hidden_time_is_that_of_a_search_by_instants(
    kernels: list[tuple[int, int, int, bool]],
) -> None:
    """Of every instant it is asked what runs where."""
    rows = [
        kernel(start, length, stream=stream, name="nccl" if talks else "gemm")
        for start, length, stream, talks in kernels
    ]
    busy = hidden = 0
    for instant in range(101):
        now = [k for k in kernels if k[0] <= instant < k[0] + k[1]]
        talking = {stream for _, _, stream, talks in now if talks}
        working = {stream for _, _, stream, talks in now if not talks}
        busy += bool(talking)
        hidden += any(working - {stream} for stream in talking)
    found = told(*rows)
    assert (found.busy_ns, found.hidden_ns) == (busy, hidden)
    assert isinstance(found.kernels, int)
    assert found.kernels == pl.Series([talks for *_, talks in kernels]).sum()


@given(
    st.lists(
        st.tuples(
            st.integers(0, 60), st.integers(0, 40), st.sampled_from([7, 8, 20, 21])
        ),
        min_size=1,
        max_size=15,
    )
)
def test_exposed_time_is_what_is_not_hidden(
    kernels: list[tuple[int, int, int]],
) -> None:
    """Where streams either talk or work, what is not hidden is exposed."""
    rows = [
        kernel(start, length, stream=stream, name="nccl" if stream >= 20 else "gemm")
        for start, length, stream in kernels
    ]
    exposed = with_exposed(swept_kernels(placed(rows)))["exposed_ns"].sum()
    found = told(*rows)
    assert exposed == found.busy_ns - found.hidden_ns
