"""Which switches change nothing, held against the kernels that are launched."""

import msgspec
import pytest
import torch

from backends.standard.tests.bench import DENSE, MOE, Bench, small
from backends.standard.tests.compiled import PROCESSORS, kernels_of
from layerscope.environment import DeviceFacts
from layerscope.layers.presets import preset
from layerscope.layers.problem import Problem
from layerscope.layers.spec import LayerSpec
from layerscope.plugin import BackendSpec
from layerscope.testing.declaration import idle as told_wrongly
from layerscope_nvidia_mega.backend import BACKEND, OF_DRAFT
from layerscope_nvidia_mega.idle import idle
from layerscope_nvidia_mega.layer import make_layer
from layerscope_nvidia_mega.switches import OFF, ON, Mechanisms
from layerscope_standard.kernels import Kernel
from layerscope_standard.workshop import Workshop

H200 = DeviceFacts(
    type="cuda", name="H200", architecture="sm_90", processors=PROCESSORS
)
NAMES = [switch.name for switch in BACKEND.switches]
OF_ROUTING = dict.fromkeys(
    ("bitmap_routing", "early_experts"), "nothing is routed, the MLP is dense"
)
WIDE = {"norm_in_product": "a row has 2064 elements, more than the 2048 that it norms"}
MANY = {
    "norm_in_product": (
        "qkv has 2560 outputs, more than the 2112 of one block for each of 132 "
        "processors"
    )
}
TALL = {
    "rope_in_query": (
        "a block of attention has 768 threads, more than the 640 with registers to "
        "make queries of 64 elements"
    )
}
ELSEWHERE = dict.fromkeys(
    ("kv_gather", "rope_in_query", "norm_in_product"),
    (
        "attention runs elsewhere, for this backend takes up to 128 new rows times "
        "query heads of a KV head, not 144"
    ),
)


def of(query_heads: int, kv_heads: int = 1, hidden_size: int = 64) -> LayerSpec:
    """A dense layer with heads of 64 elements, and six rows."""
    return small(
        msgspec.structs.replace(
            DENSE, query_heads=query_heads, kv_heads=kv_heads, hidden_size=hidden_size
        )
    )


CASES = [
    (small(MOE), {}),
    (small(DENSE), OF_ROUTING),
    (small(MOE, context=0, draft_tokens=0), {}),
    (of(1, hidden_size=2_064), OF_ROUTING | WIDE),
    (of(32, 4), OF_ROUTING | MANY),
    (of(16), OF_ROUTING | TALL),
    (of(24), OF_ROUTING | ELSEWHERE),
]


def _none() -> Workshop:
    raise AssertionError


def launched(problem: Problem, switches: dict[str, str]) -> list[Kernel]:
    """All kernels of the layer, with their macros."""
    chosen = Mechanisms.of(switches)
    return kernels_of(lambda workshop: make_layer(problem, workshop, chosen))


@pytest.mark.parametrize(("spec", "told"), CASES)
def test_what_is_idle_launches_the_same_kernels(
    spec: LayerSpec, told: dict[str, str]
) -> None:
    """And what is not, others: beside all other mechanisms, and alone.

    So does what is of the draft.
    """
    assert idle(spec, H200) == told
    problem = Bench(torch.device("cpu"), _none).problem(spec)
    nothing = dict.fromkeys(NAMES, OFF)
    for name in NAMES:
        for off, on in (({name: OFF}, {}), (nothing, nothing | {name: ON})):
            is_same = launched(problem, off) == launched(problem, on)
            assert is_same == (name in told or name == OF_DRAFT), name


def test_a_whole_model_has_too_many_outputs_and_a_rank_of_four_has_not() -> None:
    """The sizes that the README compares."""
    model = preset("qwen3-30b-a3b")
    assert idle(LayerSpec(model=model), H200)["norm_in_product"] == (
        "qkv has 5120 outputs, more than the 2112 of one block for each of 132 "
        "processors"
    )
    rank = LayerSpec(model=model, tp=4, shard_shaped=True)
    assert idle(rank, H200) == {}


def test_a_draft_has_one_mechanism_of_its_own() -> None:
    """All others are of the layer."""
    assert {switch.name: switch.of for switch in BACKEND.switches} == {
        **dict.fromkeys(NAMES, "layer"),
        "one_launch_draft": "draft",
    }


def test_of_heads_that_no_kernel_is_made_for_it_can_be_asked() -> None:
    """Whoever asks hears why, and no error that would hide the reasons of `check`."""
    heads = msgspec.structs.replace(DENSE, head_dim=80)
    assert idle(small(heads), H200) == OF_ROUTING | {
        "rope_in_query": "queries are made of 64, 128, 256 elements, not 80"
    }


@pytest.mark.parametrize("spec", [spec for spec, _ in CASES])
def test_what_is_told_keeps_the_contract(spec: LayerSpec) -> None:
    """Keys are switches, reasons are lines, and nothing is computed."""
    backend: BackendSpec = BACKEND
    assert list(told_wrongly(backend, spec, H200)) == []
