from collections.abc import Mapping
from dataclasses import replace

import pytest

from layerscope import coverage
from layerscope.layers.reference import BACKEND
from layerscope.layers.spec import Family, LayerSpec
from layerscope.plugin import BackendSpec
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
