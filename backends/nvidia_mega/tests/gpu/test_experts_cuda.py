"""The kernels of the experts on a GPU, on odd shapes and on those of real models."""

import pytest
from msgspec import structs

from backends.nvidia_mega.tests import checks_experts as checks
from backends.standard.tests.bench import DENSE, MOE, Bench, small
from layerscope.layers.presets import preset
from layerscope.layers.spec import DType, LayerSpec

QWEN = preset("qwen3-30b-a3b")


@pytest.mark.parametrize(
    ("spec", "splits"),
    [
        (small(MOE), 1),
        (small(QWEN), 4),
        (small(QWEN, draft_tokens=7), 16),
        (small(structs.replace(MOE, experts=40, normalize_top_k=False)), 3),
        (small(structs.replace(MOE, experts=512), draft_tokens=0), 5),
    ],
    ids=["16", "128", "128-eight-rows", "40", "512"],
)
def test_route(bench: Bench, spec: LayerSpec, splits: int) -> None:
    """Any number of rows and experts; ties, signed zeros and rejected experts."""
    model = structs.replace(spec.model, expert_size=16)
    checks.check_route(bench, structs.replace(spec, model=model), splits)


@pytest.mark.parametrize("dtype", [DType.BFLOAT16, DType.FLOAT8_E4M3])
@pytest.mark.parametrize(
    "spec",
    [
        small(MOE, draft_tokens=0),
        small(DENSE),
        small(QWEN, tp=4, shard_shaped=True),
        small(QWEN, tp=8, shard_shaped=True, draft_tokens=7),
    ],
    ids=["one-row", "dense", "qwen-of-4", "qwen-of-8"],
)
def test_early_experts(bench: Bench, spec: LayerSpec, dtype: DType) -> None:
    """Launched programmatically, where something may indeed start early."""
    spec = structs.replace(spec, weight_dtype=dtype)
    checks.check_early_experts(bench, spec)
