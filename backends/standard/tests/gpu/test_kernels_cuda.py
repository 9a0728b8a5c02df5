"""Every kernel on a GPU, against float64, on odd shapes and on those of real models."""

import pytest
from msgspec import structs

from backends.standard.tests import checks
from backends.standard.tests.bench import DENSE, MOE, Bench, small
from layerscope.layers.presets import preset
from layerscope.layers.spec import DType, LayerSpec
from layerscope_standard.selection import CUBLASLT, Choice

BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3
QWEN = preset("qwen3-30b-a3b")
LLAMA = preset("llama-3.1-8b")


def slice_of(spec: LayerSpec, ranks: int) -> LayerSpec:
    """One rank's slice."""
    return structs.replace(spec, tp=ranks, shard_shaped=True)


@pytest.mark.parametrize("dtype", [BF16, FP8])
@pytest.mark.parametrize(
    ("sizes", "choice"),
    [
        ((1, 16, 16), None),
        ((6, 72, 208), Choice(options={"splits": 3})),
        ((7, 1000, 1040), None),
        ((3, 104, 272), Choice(options={"splits": 2, "tiles": 2})),
        ((6, 5120, 2048), None),
        ((8, 1280, 2048), None),
        ((6, 2048, 512), None),
    ],
    ids=["least", "ragged", "odd", "two-tiles", "qkv", "qkv-of-4", "o-of-8"],
)
def test_products(
    bench: Bench, dtype: DType, sizes: tuple[int, int, int], choice: Choice | None
) -> None:
    """Any number of rows and outputs, and inputs that end within a unit."""
    checks.check_product(bench, dtype, sizes, choice)


def test_products_of_the_library(bench: Bench) -> None:
    """The other candidate writes the same parts."""
    checks.check_product(bench, BF16, (6, 1280, 2048), Choice(CUBLASLT))


def test_every_fp8_value(bench: Bench) -> None:
    """Widening is exact, for subnormal values too."""
    checks.check_every_fp8_value(bench)


@pytest.mark.parametrize("model", [DENSE, QWEN, LLAMA], ids=lambda each: each.name)
def test_norms(bench: Bench, model: object) -> None:
    """Of rows of 208, 2,048 and 4,096 elements."""
    checks.check_norms(bench, small(model, draft_tokens=4))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spec",
    [
        small(DENSE),
        small(MOE, requests=2, draft_tokens=2, page_size=7),
        small(structs.replace(MOE, head_dim=256, kv_heads=1), draft_tokens=0),
        small(QWEN, context=8190),
    ],
    ids=["no-norms", "two-requests", "256", "qwen"],
)
def test_rope(bench: Bench, spec: LayerSpec) -> None:
    """With and without norms of query and key, on pages of any size."""
    checks.check_rope(bench, spec)


@pytest.mark.parametrize(
    ("spec", "scale"),
    [
        (small(DENSE), 1.0),
        (small(MOE, requests=2, draft_tokens=3, page_size=7, context=61), 1.0),
        (small(MOE, context=40_000), 30.0),
        (small(structs.replace(MOE, head_dim=128), draft_tokens=0, context=0), 1.0),
        (small(structs.replace(MOE, head_dim=256), draft_tokens=7, context=9000), 1.0),
        (small(QWEN, context=8192), 4.0),
        (slice_of(small(QWEN, context=8192), 4), 4.0),
        (slice_of(small(QWEN, context=8191, draft_tokens=7), 8), 4.0),
        (small(LLAMA, context=8192), 4.0),
    ],
    ids=[
        *("groups-of-three", "two-requests", "long", "one-token", "256"),
        *("qwen", "qwen-of-4", "qwen-of-8", "llama"),
    ],
)
def test_attention(bench: Bench, spec: LayerSpec, scale: float) -> None:
    """One and several tiles a split, causal among new rows, sharp and flat."""
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
    [
        small(MOE),
        small(MOE, draft_tokens=0),
        small(DENSE),
        slice_of(small(QWEN, draft_tokens=7), 8),
        slice_of(small(LLAMA), 8),
    ],
    ids=["six-rows", "one-row", "dense", "qwen-of-8", "llama-of-8"],
)
def test_experts(bench: Bench, spec: LayerSpec, dtype: DType) -> None:
    """Gate and up within one block of scales, and k cut where experts are few."""
    checks.check_experts(bench, structs.replace(spec, weight_dtype=dtype))
