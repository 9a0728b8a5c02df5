"""Attention that makes its own queries, emulated on the CPU."""

import pytest
from msgspec import structs

from backends.nvidia_mega.tests.checks_attention import check_rope_attention
from backends.standard.tests.bench import DENSE, MOE, Bench, small
from layerscope.layers.spec import LayerSpec

WIDE = structs.replace(MOE, head_dim=256, kv_heads=1)


@pytest.mark.parametrize(
    ("spec", "splits"),
    [
        (small(DENSE), 1),
        (small(MOE, requests=2, draft_tokens=3, page_size=7, context=61), 2),
        (small(MOE, context=570), 1),
        (small(MOE, context=574), 3),
        (small(structs.replace(MOE, head_dim=128), draft_tokens=0, context=0), 1),
        (small(WIDE, draft_tokens=2, context=190), 2),
    ],
    ids=["groups-of-three", "two-requests", "late", "two-splits", "one-token", "256"],
)
def test_rope_attention(bench: Bench, spec: LayerSpec, splits: int) -> None:
    """New tokens in one tile, in two of one or two splits, behind those in flight."""
    check_rope_attention(bench, spec, splits)
