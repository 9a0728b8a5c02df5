from itertools import groupby
from math import inf

import pytest
import torch
from torch import Tensor

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from cuda.bindings import driver

from layerscope.errors import MeasurementError
from layerscope.graphs.edits import Allowed
from layerscope.selftest import workload as module
from layerscope.selftest.cases import Chain
from layerscope.selftest.plan import NAMES, planted_arms
from layerscope.selftest.workload import PlantedWorkload

CPU = torch.device("cpu")
PASSES = 3


def updated(workload: PlantedWorkload, chain: Chain, passes: int) -> Tensor:
    """What kernels would make of the first vector, number by number, on one element."""
    vector = [int(row[7]) for row in workload.feed.pools[0].rows[0]]
    sizes = workload._sizes
    for index in range(passes):
        chunk = 0
        for launch in chain:
            for row, chunks in launch.work:
                read = workload._weights[index, chunk : chunk + chunks]
                words = read.reshape(-1, sizes.threads, 4)[:, 7].flatten().tolist()
                vector[row] = (5 * vector[row] + sum(words)) % 2**32
                chunk += chunks
    return torch.tensor(vector).to(torch.int32)


@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_the_kernels_one_by_one(name: str) -> None:
    """Of every arm of every study, bit by bit."""
    arms, reads = planted_arms(name)
    workload = PlantedWorkload(arms, reads, PASSES, CPU)
    got = workload.result(workload.feed.pools[0].rows[0], PASSES)
    for chain in arms.values():
        assert torch.equal(got[:, 7], updated(workload, chain, PASSES))


def test_every_write_of_a_gap_is_one_of_32_bits() -> None:
    """As many as are asked for; the driver is given no more than there are."""
    target = torch.zeros(1, dtype=torch.int32)
    writes = module.writes_of(target, 3)
    kind = driver.CUstreamBatchMemOpType.CU_STREAM_MEM_OP_WRITE_VALUE_32
    assert [
        (int(one.operation), int(one.writeValue.address), int(one.writeValue.value))
        for one in writes
    ] == [(int(kind), target.data_ptr(), 1)] * 3


@pytest.fixture
def workload() -> PlantedWorkload:
    arms, reads = planted_arms("less")
    return PlantedWorkload(arms, reads, PASSES, CPU)


def test_an_error_is_all_or_nothing(workload: PlantedWorkload) -> None:
    """One wrong element of the right step's result is infinitely wrong."""
    (pool,) = workload.feed.pools
    workload.feed.step.fill_(2)
    pool.target.copy_(workload.result(pool.rows[2], PASSES))
    assert workload.error("other", PASSES - 1, PASSES) == 0.0
    assert workload.error("other", PASSES - 2, PASSES) == inf
    pool.target[1, 5] += 1
    assert workload.error("other", PASSES - 1, PASSES) == inf
    assert workload.bound("other") == 0.0


def test_what_is_poisoned_is_wrong(workload: PlantedWorkload) -> None:
    """The output is the vector, and it is all spoilt."""
    workload.poison()
    (output,) = workload.outputs("base", PASSES)
    assert bool((output == -1).all())
    assert workload.error("base", PASSES - 1, PASSES) == inf


def test_bytes_that_count_and_others(workload: PlantedWorkload) -> None:
    """A pass has 8 chunks that count; its base reads 6 more in one region."""
    chunk = workload._sizes.chunk_bytes
    assert workload.required_bytes(0, 2) == 16 * chunk
    rows = [row for row in workload.region_bytes() if row.region == "moe"]
    assert [(row.arm, row.touched, row.required) for row in rows] == [
        ("base", 8 * chunk, 2 * chunk),
        ("other", 2 * chunk, 2 * chunk),
    ]


def test_nothing_is_declared_of_the_kernels(workload: PlantedWorkload) -> None:
    """They wait for none beside them, and none may be left out."""
    assert workload.allowed("base") == Allowed()


def test_a_branch_forks_before_the_kernel_it_runs_beside() -> None:
    """Chunks are counted on over all kernels."""
    arms, _ = planted_arms("branches")
    places = module._places(arms["other"])
    assert [place.forks for place in places] == [False] * 4 + [True] + [False] * 3
    assert [place.first_chunk for place in places] == [0, 1, 2, 3, 4, 6, 8, 9]


@pytest.mark.parametrize("name", NAMES)
def test_kernels_of_a_role_follow_each_other(name: str) -> None:
    """So that each role is marked once a pass."""
    for chain in planted_arms(name)[0].values():
        marks = [names for names, _ in groupby(module._places(chain), module._names)]
        assert len(marks) == len(set(marks))


def test_too_little_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is allocated, with what is needed and what is free."""
    monkeypatch.setattr(module, "free_bytes", lambda _: 1_000)
    arms, reads = planted_arms("less")
    with pytest.raises(MeasurementError, match=r"need 0\.\d GB and 0\.0 GB .* free"):
        PlantedWorkload(arms, reads, PASSES, CPU)
