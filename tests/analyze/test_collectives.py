import numpy as np
import polars as pl
import pytest

from layerscope.analyze.collectives import (
    GroupSequence,
    sequences,
    shift_between,
    unnamed_streams,
)
from layerscope.schema import TRACE_KERNELS
from tests.analyze.jobs import ALL_REDUCE, Planted, job


def found(*kinds: str, ends_ns: list[int]) -> GroupSequence:
    """Collectives of 10 ns each."""
    ends = np.array(ends_ns, dtype=np.int64)
    return GroupSequence(kinds, ends - 10, ends)


def kinds(name: str, collective: str | None = None) -> list[str]:
    """The kind of a kernel of that name."""
    row = dict.fromkeys(TRACE_KERNELS) | {"kind": "kernel", "name": name}
    row |= {"start_ns": 0, "duration_ns": 1, "collective": collective}
    own = sequences(pl.DataFrame([row], schema=TRACE_KERNELS))
    return [kind for each in own.values() for kind in each.kinds]


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (ALL_REDUCE, "all-reduce"),
        ("ncclKernel_AllGather_RING_LL_Sum_int8_t(ncclDevComm*)", "all-gather"),
        ("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", "reduce-scatter"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "sends and receives"),
        ("void multimem_all_gather_kernel<16>", "all-gather"),
        ("ncclDevKernel_Broadcast_RING_LL", "broadcast"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("ncclDevKernel_Generic_4", "other"),
        ("void vllm::cross_device_reduce_1stage<__half, 2>", "all-reduce"),
        ("void multimem_all_reduce_kernel<c10::BFloat16, 16>", "all-reduce"),
    ],
)
def test_kinds_are_told_by_name(name: str, kind: str) -> None:
    """Also those of custom all-reduces, whose file says nothing of a collective."""
    assert kinds(name) == [kind]


def test_what_the_file_tells_of_a_collective_comes_first() -> None:
    """A kernel that serves all kinds is told by its parameters."""
    assert kinds("ncclDevKernel_Generic_4", "_allgather_base") == ["all-gather"]


@pytest.mark.parametrize(
    ("collective", "kind"),
    [
        ("all_to_allv", "all-to-all"),
        ("alltoall_base", "all-to-all"),
        ("send", "sends and receives"),
        ("irecv", "sends and receives"),
        ("wait", "other"),
    ],
)
def test_sends_are_an_all_to_all_where_the_file_says_so(
    collective: str, kind: str
) -> None:
    """NCCL runs it, and the sends of a pipeline, by a kernel of the same name."""
    assert kinds("ncclDevKernel_SendRecv", collective) == [kind]


def test_kernels_that_compute_are_none() -> None:
    """A reduction within one device is no collective."""
    assert kinds("void at::native::reduce_kernel<512, 1>") == []


def test_groups_are_apart_and_in_order_of_starts() -> None:
    """Each group has a sequence of its own; without a name it is the empty one."""
    planted = [
        Planted([30], 40, group="tp"),
        Planted([10], 20, group="tp", collective="reduce_scatter"),
        Planted([0], 50),
    ]
    (rank,) = job(planted, [0])
    own = sequences(rank.kernels)
    assert {group: each.kinds for group, each in own.items()} == {
        "": ("all-reduce",),
        "tp": ("reduce-scatter", "all-reduce"),
    }
    assert own["tp"].starts_ns.tolist() == [10, 30]
    assert own["tp"].ends_ns.tolist() == [20, 40]


def test_unnamed_groups_are_apart_by_stream() -> None:
    """On two streams there are two groups at least; a named one may use both."""
    planted = [Planted([10], 20), Planted([30], 40), Planted([50], 60, group="tp")]
    (rank,) = job(planted, [0])
    stream = pl.when(pl.col("start_ns") == 30).then(203).otherwise(84)
    kernels = rank.kernels.with_columns(stream=stream.cast(pl.Int64))
    own = sequences(kernels, by_stream=True)
    assert {group: each.starts_ns.tolist() for group, each in own.items()} == {
        "stream 203": [30],
        "stream 84": [10],
        "tp": [50],
    }
    assert unnamed_streams(kernels) == 2
    assert unnamed_streams(rank.kernels) == 1


@pytest.mark.parametrize("missing", [0, 1, 3])
def test_a_trace_that_begins_later_is_shifted(missing: int) -> None:
    """Ends differ evenly only where the collectives are the same."""
    ends_ns = [1_000, 5_000, 12_000, 13_000, 30_000, 34_000, 60_000, 61_000]
    base = found(*["all-reduce"] * 8, ends_ns=ends_ns)
    later = [end_ns + 777_000 for end_ns in ends_ns[missing:]]
    other = found(*["all-reduce"] * len(later), ends_ns=later)
    assert shift_between(base, other) == missing
    assert shift_between(other, base) == -missing


def test_kinds_fix_the_shift_where_times_do_not() -> None:
    """An even rhythm fits everywhere, the order of kinds does not."""
    base = found(*["all-reduce", "all-gather"] * 3, ends_ns=list(range(0, 600, 100)))
    other = found(
        *["all-gather", "all-reduce"] * 2, "all-gather", ends_ns=[9, 109, 209, 309, 409]
    )
    assert shift_between(base, other) == 1


def test_an_even_rhythm_is_not_shifted() -> None:
    """Of shifts that fit equally well, the one counts that uses most collectives."""
    ends_ns = list(range(0, 1_000_000, 10_000))
    base = found(*["all-reduce"] * 100, ends_ns=ends_ns)
    assert shift_between(base, base) == 0


def test_sequences_that_never_agree_have_no_shift() -> None:
    """Nothing is matched by force."""
    base = found("all-reduce", "all-reduce", ends_ns=[10, 20])
    assert shift_between(base, found("all-gather", ends_ns=[10])) is None
    broadcasts = found("broadcast", ends_ns=[10])
    assert shift_between(broadcasts, broadcasts) is None
