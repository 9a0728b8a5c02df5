"""Every kernel, emulated on the CPU: index arithmetic, barriers and values."""

from typing import Final

import pytest
import torch
from msgspec import structs

from backends.standard.tests import checks
from backends.standard.tests.bench import DENSE, MOE, Bench, choosing, small
from layerscope.layers.spec import DType, LayerSpec
from layerscope_standard.selection import Choice

BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3


@pytest.mark.parametrize("dtype", [BF16, FP8])
@pytest.mark.parametrize(
    ("sizes", "choice"),
    [
        ((1, 16, 16), None),
        ((6, 72, 208), Choice(options={"splits": 3})),
        ((8, 40, 1040), None),
        ((3, 104, 272), Choice(options={"splits": 2, "tiles": 2})),
    ],
    ids=["least", "ragged", "long", "two-tiles"],
)
def test_products(
    bench: Bench, dtype: DType, sizes: tuple[int, int, int], choice: Choice | None
) -> None:
    """Any number of rows and outputs, and inputs that end within a unit."""
    checks.check_product(bench, dtype, sizes, choice)


def test_every_fp8_value(bench: Bench) -> None:
    """Widening is exact, for subnormal values too."""
    checks.check_every_fp8_value(bench)


@pytest.mark.parametrize(
    "spec",
    [small(DENSE), small(structs.replace(MOE, hidden_size=2064), draft_tokens=0)],
    ids=["208", "2064"],
)
def test_norms(bench: Bench, spec: LayerSpec) -> None:
    """Of rows that are shorter and longer than what the threads take at once."""
    checks.check_norms(bench, spec)


@pytest.mark.parametrize(
    "spec",
    [
        small(DENSE),
        small(MOE, requests=2, draft_tokens=2, page_size=7),
        small(structs.replace(MOE, head_dim=256, kv_heads=1), draft_tokens=0),
    ],
    ids=["no-norms", "two-requests", "256"],
)
def test_rope(bench: Bench, spec: LayerSpec) -> None:
    """With and without norms of query and key, on pages of any size."""
    checks.check_rope(bench, spec)


@pytest.mark.parametrize(
    ("spec", "scale"),
    [
        (small(DENSE), 1.0),
        (small(MOE, requests=2, draft_tokens=3, page_size=7, context=61), 1.0),
        (small(MOE, context=570), 30.0),
        (small(structs.replace(MOE, head_dim=128), draft_tokens=0, context=0), 1.0),
        (small(structs.replace(MOE, head_dim=256), draft_tokens=7, context=200), 1.0),
    ],
    ids=["groups-of-three", "two-requests", "long", "one-token", "256"],
)
def test_attention(bench: Bench, spec: LayerSpec, scale: float) -> None:
    """Several splits with several tiles, causal among new rows, sharp and flat."""
    checks.check_attention(bench, spec, scale)


@pytest.mark.parametrize(("spec", "splits"), checks.TOP_K.values(), ids=checks.TOP_K)
def test_top_k(bench: Bench, spec: LayerSpec, splits: int) -> None:
    """Any number of experts and of parts; ties, signed zeros and rejected experts."""
    checks.check_top_k(bench, spec, splits)


@pytest.mark.parametrize("experts", [16, 128], ids=str)
def test_align(bench: Bench, experts: int) -> None:
    """Within a warp and over several, with an expert that all rows have."""
    model = structs.replace(MOE, experts=experts, hidden_size=64, expert_size=16)
    checks.check_align(bench, small(model, draft_tokens=7))


@pytest.mark.parametrize("dtype", [BF16, FP8])
@pytest.mark.parametrize(
    "spec",
    [small(MOE), small(MOE, draft_tokens=0), small(DENSE)],
    ids=["six-rows", "one-row", "dense"],
)
def test_experts(bench: Bench, spec: LayerSpec, dtype: DType) -> None:
    """Gate and up within one block of scales, and k cut where experts are few."""
    checks.check_experts(bench, structs.replace(spec, weight_dtype=dtype))


EXPERTS: Final = {
    "six-rows": small(MOE),
    "one-row": small(MOE, draft_tokens=0),
    "eight-rows": small(structs.replace(MOE, hidden_size=1104), draft_tokens=7),
    "dense": small(DENSE),
}
"""Widths of 144 and 272, and 1104 outputs, end within units, blocks and tiles."""

LOOPS: Final = (
    *({"runs_on": 0, "depth": each} for each in (2, 5)),
    *({"runs_on": 1, "depth": each} for each in (2, 3, 4, 5)),
    *({"runs_on": each, "parts": 4} for each in (0, 1)),
    *({"runs_on": each, "parts": 7} for each in (0, 1)),
)
"""An expert has five units of k in bfloat16 and three in fp8: parts may have none."""


def down_by(bench: Bench, options: dict[str, int]) -> Bench:
    """The same bench, where `down` is cut as `options` say."""
    return choosing(bench, {"down": Choice(options=options)})


@pytest.mark.parametrize("dtype", [BF16, FP8])
@pytest.mark.parametrize("options", LOOPS, ids=str)
@pytest.mark.parametrize("name", EXPERTS)
def test_loops_of_down(
    bench: Bench, name: str, options: dict[str, int], dtype: DType
) -> None:
    """As exact one expert at a time as in one stream, at any depth and cut of k."""
    spec = structs.replace(EXPERTS[name], weight_dtype=dtype)
    checks.check_experts(down_by(bench, options), spec)


@pytest.mark.parametrize("dtype", [BF16, FP8])
@pytest.mark.parametrize("parts", [1, 3, 7])
@pytest.mark.parametrize("name", EXPERTS)
def test_loops_of_down_agree(bench: Bench, name: str, parts: int, dtype: DType) -> None:
    """To the bit, where k is cut alike: both add in the same order."""
    spec = structs.replace(EXPERTS[name], weight_dtype=dtype)
    one_by_one, *streams = (
        checks.experts_outputs(down_by(bench, {"parts": parts, **loop}), spec)
        for loop in (
            {"runs_on": 0},
            *({"runs_on": 1, "depth": each} for each in (2, 5)),
        )
    )
    for stream in streams:
        for found, want in zip(stream, one_by_one, strict=True):
            assert bool(want.isfinite().all())
            assert torch.equal(found, want)
