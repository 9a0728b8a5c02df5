import msgspec
import pytest
import torch

from layerscope.environment import DeviceFacts
from layerscope.layers.spec import DType, Family, LayerSpec
from layerscope.plugin import (
    API_VERSION,
    BackendSpec,
    BuildContext,
    Built,
    Numerics,
    Requires,
    StepShape,
    Waits,
)
from layerscope.regions import Region
from tests import handmade

SPEC = LayerSpec(model=handmade.model(), requests=2, draft_tokens=3)
DEVICE = handmade.environment().device


def unbuildable(_: BuildContext) -> Built:
    """Checking must not build."""
    raise AssertionError


def backend(requires: Requires = Requires()) -> BackendSpec:  # noqa: B008 (frozen)
    """Covers the attention of two families, on what `requires` allows."""
    return BackendSpec(
        name="paper",
        api_version=API_VERSION,
        summary="a backend on paper",
        covers={Family.QWEN3_MOE: (Region.ATTENTION,)},
        build=unbuildable,
        requires=requires,
    )


def test_a_backend_that_needs_nothing_runs_a_covered_family_anywhere() -> None:
    """Empty requirements refuse nothing."""
    assert backend().refusals(SPEC, DEVICE) == []
    assert backend().refusals(SPEC, DeviceFacts(type="cpu", name="any")) == []


def test_requirements_that_are_met_refuse_nothing() -> None:
    """Every requirement is a set of allowed values, the limit on rows inclusive."""
    requires = Requires(
        device_types=("hip", "cuda"),
        architectures=("sm_90", "sm_100"),
        dtypes=(DType.BFLOAT16,),
        weight_dtypes=(DType.FLOAT8_E4M3, DType.BFLOAT16),
        tp_sizes=(1, 8),
        max_rows=8,
    )
    assert backend(requires).refusals(SPEC, DEVICE) == []


def test_all_reasons_against_a_layer_come_at_once() -> None:
    """Whoever fixes one reason does not meet the next only then."""
    requires = Requires(
        architectures=("sm_100", "sm_103"),
        dtypes=(DType.FLOAT32,),
        weight_dtypes=(DType.FLOAT8_E4M3,),
        tp_sizes=(2, 4),
        max_rows=7,
    )
    model = msgspec.structs.replace(SPEC.model, family=Family.LLAMA)
    spec = msgspec.structs.replace(SPEC, model=model)
    assert backend(requires).refusals(spec, DEVICE) == [
        "covers qwen3_moe, not llama",
        "needs architecture sm_100, sm_103, not sm_90",
        "needs dtype float32, not bfloat16",
        "needs weight dtype float8_e4m3, not bfloat16",
        "needs tensor-parallel size 2, 4, not 1",
        "runs at most 7 rows, not 8",
    ]


def test_another_type_of_device_has_no_architecture_to_be_told() -> None:
    """What is said of it follows from its type."""
    requires = Requires(device_types=("hip",), architectures=("gfx942", "gfx950"))
    assert backend(requires).refusals(SPEC, DEVICE) == ["needs device hip, not cuda"]


def test_rows_of_a_step_are_those_of_all_requests() -> None:
    """Dispatch may decide on the product."""
    assert StepShape(requests=3, tokens_per_request=6, context=512).rows == 18


def test_waits_begin_with_none_given_up() -> None:
    """One flag on the device, and no other ranks."""
    waits = Waits.on(torch.device("cpu"))
    assert (waits.abort.dtype, waits.abort.tolist()) == (torch.int32, [0])
    assert waits.peers == ()


@pytest.mark.parametrize(
    ("dtype", "bound"), [(DType.FLOAT32, 1e-6), (DType.BFLOAT16, 0.5)]
)
def test_the_bound_is_that_of_the_activations(dtype: DType, bound: float) -> None:
    """A backend states one bound a type of activations."""
    assert Numerics(bfloat16=0.5, float32=1e-6).bound(dtype) == bound
