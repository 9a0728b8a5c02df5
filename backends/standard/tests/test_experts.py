import pytest
import torch
from msgspec import structs

from backends.standard.tests.bench import Bench, small
from backends.standard.tests.compiled import kernels_of
from layerscope.layers.presets import preset
from layerscope.layers.spec import DType
from layerscope_standard.experts import make_experts
from layerscope_standard.workshop import Workshop

BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3
QWEN = structs.replace(preset("qwen3-30b-a3b"), experts=16, hidden_size=64)
"""As wide as its experts are, but few and short of outputs."""


def _none() -> Workshop:
    raise AssertionError


@pytest.mark.parametrize(
    ("dtype", "ranks", "runs_on", "depth"),
    [
        (BF16, 1, 0, 6),
        (BF16, 4, 0, 6),
        (BF16, 8, 1, 3),
        (FP8, 1, 1, 4),
        (FP8, 4, 1, 3),
        (FP8, 8, 1, 2),
    ],
)
def test_experts_are_streamed_where_that_was_faster(
    dtype: DType, ranks: int, runs_on: int, depth: int
) -> None:
    """In fp8, and in bfloat16 where an expert is short; as many units as go into it."""
    spec = small(QWEN, weight_dtype=dtype, tp=ranks, shard_shaped=ranks > 1)
    problem = Bench(torch.device("cpu"), _none).problem(spec)
    kernels = kernels_of(
        lambda workshop: make_experts(problem, workshop).after_routing(0)
    )
    (down,) = (each for each in kernels if each.name.startswith("down"))
    assert dict(down.defines) == {"TILES": 1, "RUNS_ON": runs_on, "DOWN_DEPTH": depth}
