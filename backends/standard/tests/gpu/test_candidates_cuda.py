"""What Triton and flashinfer run on a GPU, against float64, and in a captured layer."""

import importlib.util
from collections.abc import Mapping

import pytest

pytest.importorskip("cuda.bindings", reason="the cuda extra is not installed")

import torch
from msgspec import structs

from backends.standard.tests import checks
from backends.standard.tests.bench import DENSE, MOE, Bench, choosing, poison, small
from layerscope.graphs.cuda import GraphPlayer
from layerscope.layers.feed import advance
from layerscope.layers.presets import preset
from layerscope.layers.problem import poison as poison_results
from layerscope.layers.reference import reference_output, relative_error
from layerscope.layers.spec import DType, LayerSpec
from layerscope.regions import layer_pass, region
from layerscope_standard import BACKEND
from layerscope_standard.layer import make_layer
from layerscope_standard.selection import FLASHINFER, TRITON, Choice

BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3
QWEN = preset("qwen3-30b-a3b")
LLAMA = preset("llama-3.1-8b")
BY_TRITON = Choice(TRITON)
BY_FLASHINFER = Choice(FLASHINFER)

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed"
)
needs_flashinfer = pytest.mark.skipif(
    importlib.util.find_spec("flashinfer") is None, reason="flashinfer is not installed"
)


def slice_of(spec: LayerSpec, ranks: int) -> LayerSpec:
    """One rank's slice."""
    return structs.replace(spec, tp=ranks, shard_shaped=True)


@needs_triton
@pytest.mark.parametrize("dtype", [BF16, FP8])
@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ((1, 16, 16), {}),
        ((6, 72, 208), {"splits": 2}),
        ((7, 1000, 1040), {"outputs": 64, "k": 256}),
        ((6, 5120, 2048), {}),
        ((8, 1280, 2048), {"outputs": 32, "splits": 4}),
        ((6, 2048, 512), {"warps": 1}),
    ],
    ids=["least", "ragged", "odd", "qkv", "qkv-of-4", "o-of-8"],
)
def test_products_by_triton(
    bench: Bench, dtype: DType, sizes: tuple[int, int, int], options: dict[str, int]
) -> None:
    """Any number of rows and outputs, and inputs that end within a tile."""
    checks.check_product(bench, dtype, sizes, Choice(TRITON, options))


@needs_triton
def test_every_fp8_value_by_triton(bench: Bench) -> None:
    """Widening is exact, for subnormal values too."""
    checks.check_every_fp8_value(choosing(bench, {"qkv": BY_TRITON}))


@pytest.mark.parametrize("model", [DENSE, QWEN, LLAMA], ids=lambda each: each.name)
@pytest.mark.parametrize(
    "choices",
    [
        pytest.param(
            {"norm": BY_TRITON, "post_norm": BY_TRITON}, marks=needs_triton, id="triton"
        ),
        pytest.param(
            {
                "norm": BY_FLASHINFER,
                "o_proj": Choice(options={"splits": 1}),
                "post_norm": BY_FLASHINFER,
            },
            marks=needs_flashinfer,
            id="flashinfer",
        ),
    ],
)
def test_norms(bench: Bench, model: object, choices: Mapping[str, Choice]) -> None:
    """Of rows of 208, 2,048 and 4,096 elements."""
    spec = small(model, draft_tokens=4)  # type: ignore[arg-type]
    checks.check_norms(choosing(bench, choices), spec)


@needs_flashinfer
@pytest.mark.parametrize(
    ("spec", "scale"),
    [
        (small(structs.replace(MOE, head_dim=128), draft_tokens=0, context=0), 1.0),
        (small(QWEN, requests=2, draft_tokens=3, page_size=16, context=61), 1.0),
        (small(QWEN, context=8192), 4.0),
        (slice_of(small(QWEN, context=8192), 4), 4.0),
        (slice_of(small(QWEN, context=8191, draft_tokens=7), 8), 4.0),
    ],
    ids=["one-token", "two-requests", "qwen", "qwen-of-4", "qwen-of-8"],
)
def test_attention_by_flashinfer(bench: Bench, spec: LayerSpec, scale: float) -> None:
    """One and several splits, causal among new rows, sharp and flat."""
    chosen = choosing(bench, {"attention": BY_FLASHINFER})
    checks.check_attention(chosen, spec, scale)


@needs_triton
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
def test_experts_by_triton(bench: Bench, spec: LayerSpec, dtype: DType) -> None:
    """Gate and up within one block of scales, and widths that end within a tile."""
    chosen = choosing(bench, {"gate_up": BY_TRITON, "down": BY_TRITON})
    checks.check_experts(chosen, structs.replace(spec, weight_dtype=dtype))


ALL_OF_TRITON = dict.fromkeys(
    ("norm", "qkv", "o_proj", "post_norm", "router", "gate_up", "down"), BY_TRITON
)


@pytest.mark.parametrize(
    ("choices", "is_programmatic"),
    [
        pytest.param(ALL_OF_TRITON, True, marks=needs_triton, id="triton"),
        pytest.param(
            {
                "norm": BY_FLASHINFER,
                "attention": BY_FLASHINFER,
                "o_proj": Choice(options={"splits": 1}),
                "post_norm": BY_FLASHINFER,
            },
            False,
            marks=needs_flashinfer,
            id="flashinfer",
        ),
    ],
)
def test_a_captured_layer_is_right(
    bench: Bench, choices: Mapping[str, Choice], *, is_programmatic: bool
) -> None:
    """Replays on new inputs, memory between kernels poisoned; edges are programmatic.

    Where flashinfer adds to the residual by a kernel of torch, one edge a pass is not.
    """
    chosen = choosing(bench, choices)
    spec = LayerSpec(model=QWEN, context=1_001, tp=8, shard_shaped=True)
    problem, player = chosen.problem(spec), GraphPlayer()
    built = make_layer(problem, chosen.workshop())

    def play(passes: int) -> None:
        for index in range(passes):
            with layer_pass(index):
                for name in spec.regions:
                    with region(name):
                        built.step.run(name, index)

    replay = player.capture(play, problem.passes)
    full = [link for link in replay.links if not link.programmatic]
    assert len(full) == (0 if is_programmatic else problem.passes)
    for _ in range(10):
        advance(problem.feed)
        poison_results(problem)
        poison(built.workshop)
        torch.cuda.synchronize()
        replay.launch()
        player.wait()
        for index in range(problem.passes):
            want = reference_output(problem, index)
            error = relative_error(problem.buffers[index].out, want)
            assert error <= BACKEND.numerics.bfloat16
