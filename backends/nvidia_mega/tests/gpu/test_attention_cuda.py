"""Attention that makes its own queries, on a GPU."""

import pytest
from msgspec import structs

from backends.nvidia_mega.tests.checks_attention import check_rope_attention
from backends.standard.tests.bench import DENSE, MOE, Bench, small
from layerscope.layers.presets import preset
from layerscope.layers.spec import LayerSpec

QWEN = preset("qwen3-30b-a3b")
LLAMA = preset("llama-3.1-8b")


def slice_of(spec: LayerSpec, ranks: int) -> LayerSpec:
    """One rank's slice."""
    return structs.replace(spec, tp=ranks, shard_shaped=True)


@pytest.mark.parametrize(
    ("spec", "splits"),
    [
        (small(DENSE), 1),
        (small(MOE, requests=2, draft_tokens=3, page_size=7, context=61), 2),
        (small(MOE, context=40_000), 1),
        (small(structs.replace(MOE, head_dim=128), draft_tokens=0, context=0), 1),
        (small(structs.replace(MOE, head_dim=256), draft_tokens=4, context=9000), 1),
        (small(QWEN, context=8192), 1),
        (slice_of(small(QWEN, context=8192), 4), 1),
        (slice_of(small(QWEN, context=8189), 4), 2),
        (slice_of(small(QWEN, context=8191, draft_tokens=7), 8), 5),
        (small(LLAMA, context=8190), 1),
    ],
    ids=[
        *("groups-of-three", "two-requests", "long", "one-token", "256"),
        *("qwen", "qwen-of-4", "qwen-of-4-two-tiles", "qwen-of-8", "llama"),
    ],
)
def test_rope_attention(bench: Bench, spec: LayerSpec, splits: int) -> None:
    """Bit for bit the two kernels of the standard chain, early and not."""
    check_rope_attention(bench, spec, splits)
