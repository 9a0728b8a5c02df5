"""The kernels of the experts, emulated on the CPU."""

from typing import Final

import pytest
from msgspec import structs

from backends.nvidia_mega.tests import checks_experts as checks
from backends.standard.tests.bench import DENSE, MOE, Bench, choosing, small
from layerscope.layers.presets import preset
from layerscope.layers.spec import DType, LayerSpec
from layerscope_standard.selection import Choice


@pytest.mark.parametrize(
    ("spec", "splits"),
    [
        (small(MOE), 1),
        (small(preset("qwen3-30b-a3b"), draft_tokens=7), 4),
        (small(structs.replace(MOE, experts=40, normalize_top_k=False)), 3),
        (small(structs.replace(MOE, experts=512), draft_tokens=0), 5),
        (small(structs.replace(MOE, experts=8, experts_per_token=8)), 1),
    ],
    ids=["16", "128", "40", "512", "all-of-8"],
)
def test_route(bench: Bench, spec: LayerSpec, splits: int) -> None:
    """Any number of rows and experts; ties, signed zeros and rejected experts."""
    model = structs.replace(spec.model, hidden_size=272, expert_size=16)
    checks.check_route(bench, structs.replace(spec, model=model), splits)


@pytest.mark.parametrize("dtype", [DType.BFLOAT16, DType.FLOAT8_E4M3])
@pytest.mark.parametrize(
    "spec",
    [small(MOE), small(MOE, draft_tokens=0), small(DENSE)],
    ids=["six-rows", "one-row", "dense"],
)
def test_early_experts(bench: Bench, spec: LayerSpec, dtype: DType) -> None:
    """Experts with rows, fewer than warps and more, and a dense MLP."""
    spec = structs.replace(spec, weight_dtype=dtype)
    checks.check_early_experts(bench, spec)


LOOPS: Final = ({"runs_on": 0}, {"runs_on": 1}, {"runs_on": 1, "depth": 2})
"""An expert at a time, and from expert to expert in one stream."""


@pytest.mark.parametrize("dtype", [DType.BFLOAT16, DType.FLOAT8_E4M3])
@pytest.mark.parametrize("options", LOOPS, ids=str)
@pytest.mark.parametrize(
    "spec",
    [small(MOE), small(MOE, draft_tokens=0), small(MOE, draft_tokens=7), small(DENSE)],
    ids=["six-rows", "one-row", "eight-rows", "dense"],
)
def test_early_experts_by_either_loop(
    bench: Bench, spec: LayerSpec, options: dict[str, int], dtype: DType
) -> None:
    """The same, whichever is planned."""
    chosen = choosing(bench, {"down": Choice(options=options)})
    checks.check_early_experts(chosen, structs.replace(spec, weight_dtype=dtype))
