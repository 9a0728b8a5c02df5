"""Triton's kernels by its interpreter.

It must be chosen before Triton is imported: test_triton.py runs this file in a process
of its own.
"""

import os

import pytest
from msgspec import structs

from backends.standard.tests import checks
from backends.standard.tests.bench import DENSE, MOE, Bench, choosing, small
from layerscope.layers.spec import DType, LayerSpec
from layerscope_standard.kernels import Operation
from layerscope_standard.layer import make_layer
from layerscope_standard.selection import TRITON, Choice

pytestmark = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="test_triton.py runs these"
)

BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3


@pytest.fixture(autouse=True)
def _cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter cuts bfloat16 off instead of rounding it."""
    monkeypatch.setattr(checks, "STORED", 2 * checks.STORED)


@pytest.mark.parametrize("dtype", [BF16, FP8])
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((1, 16, 16), {}),
        ((6, 72, 208), {"splits": 2, "k": 128}),
        ((8, 40, 272), {"outputs": 32, "k": 64}),
    ],
    ids=["least", "ragged", "small-tiles"],
)
def test_products(
    bench: Bench, dtype: DType, sizes: tuple[int, int, int], options: dict[str, int]
) -> None:
    """Any number of rows and outputs, and inputs that end within a tile."""
    checks.check_product(bench, dtype, sizes, Choice(TRITON, options))


def test_every_fp8_value(bench: Bench) -> None:
    """Widening is exact, for subnormal values too."""
    checks.check_every_fp8_value(choosing(bench, {"qkv": Choice(TRITON)}))


def test_norms(bench: Bench) -> None:
    """Of rows that are no power of two, with parts of a product and without."""
    chosen = {"norm": Choice(TRITON), "post_norm": Choice(TRITON)}
    checks.check_norms(choosing(bench, chosen), small(DENSE))


@pytest.mark.parametrize("dtype", [BF16, FP8])
@pytest.mark.parametrize("model", [MOE, DENSE], ids=["six-rows", "dense"])
def test_experts(bench: Bench, model: object, dtype: DType) -> None:
    """Gate and up within one block of scales, and widths that end within a tile."""
    if model is MOE:
        model = structs.replace(MOE, hidden_size=144)
    spec = LayerSpec(model=model, context=20, weight_dtype=dtype)  # type: ignore[arg-type]
    options = {"outputs": 64}
    chosen = {"gate_up": Choice(TRITON, options), "down": Choice(TRITON, options)}
    checks.check_experts(choosing(bench, chosen), spec)


def test_a_layer_of_chosen_kernels(bench: Bench) -> None:
    """Every role that Triton can run, in the order of execution."""
    roles = ("norm", "qkv", "o_proj", "post_norm", "router", "gate_up", "down")
    chosen = choosing(bench, {role: Choice(TRITON) for role in roles})
    spec = small(structs.replace(MOE, hidden_size=64), draft_tokens=0, context=20)
    problem = chosen.problem(spec)
    step = make_layer(problem, chosen.workshop()).step
    operations: list[Operation] = [
        each for region in spec.regions for each in step.operations[region][0]
    ]
    assert [each.role for each in operations] == [
        *("norm", "qkv", "rope_kv_write", "attention", "combine"),
        *("o_proj", "post_norm"),
        *("router", "top_k", "align", "gate_up", "down", "sum"),
    ]
