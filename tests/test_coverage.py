from collections.abc import Mapping
from dataclasses import replace

import pytest

from layerscope import coverage
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.reference import BACKEND
from layerscope.layers.spec import Family, LayerSpec
from layerscope.plugin import BackendSpec, DeviceFacts, Switch
from layerscope.regions import Region
from tests import handmade

SPEC = LayerSpec(model=handmade.model(), draft_tokens=63)


def partial(declined: Mapping[Region, str], *covers: Region) -> BackendSpec:
    """A backend that covers some regions, and declines some."""
    return replace(
        BACKEND,
        covers={Family.QWEN3_MOE: covers or SPEC.regions},
        declines=lambda spec: {
            region: f"{why}, not {spec.rows}" for region, why in declined.items()
        },
    )


def test_what_declines_nothing_leaves_nothing() -> None:
    """With the field and without."""
    for backend in (BACKEND, partial({})):
        assert coverage.left(backend, SPEC) == {}
        assert coverage.idle(backend, SPEC) == []


def test_regions_are_left_because_they_are_not_covered_or_declined() -> None:
    """In the order of the layer, each with its own reason."""
    backend = partial({Region.MOE: "runs 8 rows"}, Region.MOE, Region.O_PROJ_ALL_REDUCE)
    assert list(coverage.left(backend, SPEC).items()) == [
        (Region.ATTENTION, "does not cover it"),
        (Region.MOE, "runs 8 rows, not 64"),
    ]
    assert coverage.declined(backend, SPEC) == {Region.MOE: "runs 8 rows, not 64"}
    assert coverage.idle(backend, SPEC) == []


@pytest.mark.parametrize(
    ("covers", "reasons"),
    [
        (SPEC.regions, ["runs 8 rows, not 64"]),
        ((Region.MOE,), ["does not cover it", "runs 8 rows, not 64"]),
    ],
)
def test_a_backend_is_idle_where_it_leaves_all(
    covers: tuple[Region, ...], reasons: list[str]
) -> None:
    """Each reason comes once."""
    backend = partial(dict.fromkeys(covers, "runs 8 rows"), *covers)
    assert coverage.idle(backend, SPEC) == reasons


def test_what_is_not_covered_cannot_be_declined() -> None:
    """The reason is that it is not covered."""
    backend = partial({Region.ATTENTION: "is tired"}, Region.MOE)
    assert coverage.left(backend, SPEC) == dict.fromkeys(
        (Region.ATTENTION, Region.O_PROJ_ALL_REDUCE), "does not cover it"
    )
    assert coverage.declined(backend, SPEC) == {}


SWITCHES = (
    Switch(name="early", values=("on", "off"), toggles="when"),
    Switch(name="fused", values=("on", "off"), toggles="how many"),
)
DEVICE = DeviceFacts(type="cuda", name="Paper GPU", processors=132)


def test_idle_switches_are_those_that_the_backend_names() -> None:
    """For the layer and the device, in the order of its switches."""
    plain = replace(BACKEND, switches=SWITCHES)
    assert coverage.idle_switches(plain, SPEC, DEVICE) == {}
    backend = replace(
        plain,
        idle=lambda spec, device: {
            "fused": f"it takes 8 rows, not {spec.rows}",
            "early": f"it needs 133 processors, not {device.processors}",
        },
    )
    assert list(coverage.idle_switches(backend, SPEC, DEVICE).items()) == [
        ("early", "it needs 133 processors, not 132"),
        ("fused", "it takes 8 rows, not 64"),
    ]


def test_a_draft_has_idle_switches_of_its_own() -> None:
    """None where nothing is said of drafts."""
    draft = DraftSpec(model="paper", vocab_size=64)
    backend = replace(
        BACKEND, switches=SWITCHES, idle=lambda *_: {"fused": "it has few rows"}
    )
    assert coverage.idle_switches(backend, draft, DEVICE) == {}
    backend = replace(
        backend, idle_in_draft=lambda spec, _: {"early": f"{spec.tokens} tokens"}
    )
    assert coverage.idle_switches(backend, draft, DEVICE) == {"early": "5 tokens"}


def test_where_no_region_is_its_own_all_switches_are_idle() -> None:
    """The backend is not asked: nothing of it is built."""
    left = partial(dict.fromkeys(SPEC.regions, "runs 8 rows"))
    backend = replace(left, switches=SWITCHES, idle=lambda *_: {})
    why = "no region runs on reference, which runs 8 rows, not 64"
    assert coverage.idle_switches(backend, SPEC, DEVICE) == {
        "early": why,
        "fused": why,
    }
