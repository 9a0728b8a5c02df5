import pytest
import torch

from backends.torch_compile.tests.small import DENSE, MOE, problem_of, small
from layerscope.layers.problem import new_slots, poison
from layerscope.layers.reference import reference_output
from layerscope.layers.spec import DType, ModelShape
from layerscope.plugin import Numerics
from layerscope_torch_compile.layer import make_layer

BF16, FP8 = DType.BFLOAT16, DType.FLOAT8_E4M3


@pytest.mark.parametrize("model", [MOE, DENSE], ids=lambda model: model.name)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"dtype": BF16, "weight_dtype": BF16},
        {"dtype": BF16, "weight_dtype": FP8},
        {"weight_dtype": FP8, "tp": 2, "shard_shaped": True},
        {"requests": 2, "draft_tokens": 5},
        {"requests": 4, "draft_tokens": 0, "context": 0},
        {"page_size": 1, "context": 5},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_what_is_compiled_computes_the_layer(
    model: ModelShape, changes: dict[str, object]
) -> None:
    """Not yet compiled, all regions are within the bound and write the new KV rows."""
    spec = small(model, **changes)
    problem = problem_of(spec)
    layer = make_layer(problem)
    poison(problem)
    for index, tensors in enumerate(layer.passes):
        expected = reference_output(problem, index, torch.float64)
        for region, function in layer.functions.items():
            function(tensors[region])
        error = problem.buffers[index].out.double() - expected
        assert error.norm() / expected.norm() <= Numerics().bound(spec.dtype)
        cache, slots = problem.caches[index], new_slots(problem, index)
        for pages in (cache.key, cache.value):
            assert pages.flatten(0, 1)[slots].isfinite().all()


def test_the_device_bytes_are_those_of_the_tables() -> None:
    """RoPE tables, slots and ids are all that is allocated, and pages for flex."""
    layer = make_layer(problem_of(small(MOE)))
    rope, slots, ids = 2 * 3 * 16 * 4, 3 * 3 * 8, 3 * 3 * 3 * 8
    assert layer.tables.device_bytes == rope + slots + ids
