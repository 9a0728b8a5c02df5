from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from layerscope import coverage
from layerscope.errors import BackendError
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
        assert coverage.why_all_left(backend, SPEC) == []


def test_regions_are_left_because_they_are_not_covered_or_declined() -> None:
    """In the order of the layer, each with its own reason."""
    backend = partial({Region.MOE: "runs 8 rows"}, Region.MOE, Region.O_PROJ_ALL_REDUCE)
    assert list(coverage.left(backend, SPEC).items()) == [
        (Region.ATTENTION, "does not cover it"),
        (Region.MOE, "runs 8 rows, not 64"),
    ]
    assert coverage.declined(backend, SPEC) == {Region.MOE: "runs 8 rows, not 64"}
    assert coverage.why_all_left(backend, SPEC) == []


@pytest.mark.parametrize(
    ("covers", "reasons"),
    [
        (SPEC.regions, ["runs 8 rows, not 64"]),
        ((Region.MOE,), ["does not cover it", "runs 8 rows, not 64"]),
    ],
)
def test_why_all_regions_are_left(
    covers: tuple[Region, ...], reasons: list[str]
) -> None:
    """Each reason comes once."""
    backend = partial(dict.fromkeys(covers, "runs 8 rows"), *covers)
    assert coverage.why_all_left(backend, SPEC) == reasons


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


SWITCHES_OF_BOTH = (
    replace(SWITCHES[0], of="layer"),
    replace(SWITCHES[1], of="draft"),
    Switch(name="late", values=("on", "off"), toggles="whether"),
)


def test_a_switch_of_the_other_problem_is_idle_whatever_the_backend_says() -> None:
    """One of the draft in the layer, and the other way round; one of both is not."""
    backend = replace(
        BACKEND,
        switches=SWITCHES_OF_BOTH,
        idle=lambda *_: {"fused": "it has few rows"},
        idle_in_draft=lambda *_: {"late": "few tokens"},
    )
    draft = DraftSpec(model="paper", vocab_size=64)
    assert coverage.of_other(backend, SPEC) == ["fused"]
    assert coverage.idle_switches(backend, SPEC, DEVICE) == {
        "fused": "it is of the draft, and this is the layer"
    }
    assert coverage.of_other(backend, draft) == ["early"]
    assert coverage.idle_switches(backend, draft, DEVICE) == {
        "early": "it is of the layer, and this is the draft",
        "late": "few tokens",
    }


WRONG = [
    (None, "answered None: it must map {things} to reasons"),
    ("moe", "answered 'moe': it must map {things} to reasons"),
    (["moe", "early"], "answered ['moe', 'early']: it must map {things} to reasons"),
    ({"moe": None}, "says of moe None, which is not one line of text"),
    ({"moe": 8}, "says of moe 8, which is not one line of text"),
    ({"moe": " "}, "says of moe ' ', which is not one line of text"),
    ({"moe": "a\rb"}, "says of moe 'a\\rb', which is not one line of text"),
]
"""Answers, and what is wrong with each."""


@pytest.mark.parametrize(("told", "wrong"), WRONG)
@pytest.mark.parametrize("asked", ["idle", "idle_in_draft"])
def test_idle_switches_have_a_line_each(asked: str, told: Any, wrong: str) -> None:  # noqa: ANN401
    """What is recorded must be read again, and printed."""
    switch = Switch(name="moe", values=("on", "off"), toggles="what")
    answers: dict[str, Any] = {asked: lambda *_: told}
    backend = replace(BACKEND, switches=(switch,), **answers)
    draft = DraftSpec(model="paper", vocab_size=64)
    with pytest.raises(BackendError) as raised:
        coverage.idle_switches(backend, SPEC if asked == "idle" else draft, DEVICE)
    assert str(raised.value) == f"{asked} {wrong.format(things='switches')}"


def test_what_is_idle_is_a_switch_of_the_backend() -> None:
    """A slip of the pen would leave the arm without its line."""
    backend = replace(BACKEND, switches=SWITCHES, idle=lambda *_: {"erly": "few rows"})
    with pytest.raises(BackendError) as raised:
        coverage.idle_switches(backend, SPEC, DEVICE)
    assert str(raised.value) == "idle names erly, which is no switch of it"


@pytest.mark.parametrize(("told", "wrong"), WRONG)
def test_declined_regions_have_a_line_each(told: Any, wrong: str) -> None:  # noqa: ANN401
    """A region without a reason would be asked to run."""
    backend = replace(BACKEND, declines=lambda _: told)
    with pytest.raises(BackendError) as raised:
        coverage.left(backend, SPEC)
    assert str(raised.value) == f"declines {wrong.format(things='regions')}"
