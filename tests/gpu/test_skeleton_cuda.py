from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import torch

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

from layerscope.graphs.skeleton import (
    GRIDS,
    Stage,
    Variant,
    offsets_of,
    stages_of,
    standard_chain,
)
from layerscope.graphs.stage_kernels import Skeleton
from layerscope.layers.presets import preset
from layerscope.layers.spec import DType, LayerSpec
from layerscope.layers.tensors import activation_bytes
from layerscope.runner.limit_times import Effort
from layerscope.runner.limits import READ_BYTES, measure_bounds, measure_reads

if TYPE_CHECKING:
    from layerscope.graphs.cuda import GraphPlayer

PASSES = 3
HANDED_BYTES = 24_576
NOISE = 1.03
QUICK = Effort(captures=2, rounds=4)
CHAIN = tuple(
    Stage(name="read", region="moe", bytes=size, needs_routing=size == 24 << 20)
    for size in (4096, 3 << 20, 768, 0, 540_672, 0, 24 << 20, 0, 9_000_192)
)
"""Shallow and deep stages, whole tiles and parts of one, all of whole lines."""


@pytest.fixture(scope="module")
def skeleton() -> Skeleton:
    _, stride = offsets_of(CHAIN)
    return Skeleton(torch.device("cuda", 0), PASSES * stride, HANDED_BYTES)


@pytest.mark.parametrize("most", GRIDS)
@pytest.mark.parametrize("variant", list(Variant))
def test_every_byte_is_read_once_and_every_kernel_waits_for_the_one_before(
    skeleton: Skeleton, player: "GraphPlayer", variant: Variant, most: int | None
) -> None:
    """The sum of all words is the host's; each kernel counts on from what it got."""
    body = skeleton.body(CHAIN, variant, most, counts=True)
    replay = player.capture(body, PASSES)
    kernels = PASSES * len(stages_of(variant, CHAIN))
    assert len(replay.nodes) == 1 + kernels
    _, stride = offsets_of(CHAIN)
    words = skeleton.cold[: PASSES * stride // 8].view(torch.int32)
    expected = int(words.sum(dtype=torch.int64)) % 2**32
    for _ in range(5):
        skeleton.total.zero_()
        skeleton.handed.zero_()
        player.wait()
        replay.launch()
        player.wait()
        assert int(skeleton.total) % 2**32 == expected
        assert skeleton.handed.unique(dim=0).tolist() == [[kernels, 0, 0, 0]]
    replay.close()


def test_what_starts_earlier_is_not_slower() -> None:
    """From one read to no overlap at all, of a small slice; bytes are as planned."""
    spec = LayerSpec(
        model=preset("qwen3-30b-a3b"),
        weight_dtype=DType.FLOAT8_E4M3,
        tp=8,
        shard_shaped=True,
    )
    chain = standard_chain(spec, 41)
    device = torch.device("cuda", 0)
    bounds = measure_bounds({"": chain}, activation_bytes(spec), device, QUICK)
    assert {bound.bytes for bound in bounds} == {31_540_032}
    assert [bound.kernels for bound in bounds] == [14, 14, 14, 14, 1]
    found = {bound.name: bound.pass_ns for bound in bounds}
    assert list(found) == list(Variant)
    slowest_first = list(found.values())
    for slower, faster in pairwise(slowest_first):
        assert faster <= slower * NOISE, found


def test_more_bytes_take_longer() -> None:
    """Of every size that fits; none is read in no time."""
    reads = measure_reads(torch.device("cuda", 0), QUICK)
    assert [read.bytes for read in reads] == list(READ_BYTES[: len(reads)])
    durations = [read.duration_ns for read in reads]
    assert durations == sorted(durations)
    assert all(read.duration_ns > 0 for read in reads)


def test_the_memory_is_given_back() -> None:
    """What limits borrow is free for whoever comes after."""
    device = torch.device("cuda", 0)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved(device)
    measure_bounds({"": CHAIN}, HANDED_BYTES, device, Effort(captures=1, rounds=2))
    assert torch.cuda.memory_reserved(device) == before
