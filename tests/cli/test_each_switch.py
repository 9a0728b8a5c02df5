import dataclasses
from typing import Any

import msgspec
import pytest

from layerscope import registry
from layerscope.cli.each_switch import DOSES_NS, with_each_switch
from layerscope.errors import InputError
from layerscope.experiment import SERIAL, Experiment
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.reference import BACKEND
from layerscope.layers.spec import LayerSpec
from layerscope.plugin import BackendSpec, DeviceFacts, Switch, SwitchKind
from layerscope.study import Arm, Study, SwitchStudy
from layerscope.switches import SwitchArms, TakenApart
from tests import handmade

EARLY = Switch(
    name="early",
    values=("on", "off"),
    toggles="when kernels load",
    bitwise=True,
    kind=SwitchKind.OVERLAP,
    starts_early=("gate_up", "down"),
)
FUSED = Switch(name="fused", values=("on", "off"), toggles="how many kernels")
WAYS = Switch(name="ways", values=("none", "two", "four"), toggles="a", off="none")
ONE = Switch(name="one", values=("only",), toggles="nothing")
DEVICE = handmade.environment().device
SPEC = LayerSpec(model=handmade.model())
DRAFT = DraftSpec(model="paper", vocab_size=64)
DOSES = tuple(Experiment(delay="/gate_up", delay_ns=dose) for dose in DOSES_NS)


@pytest.fixture(autouse=True)
def _backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backends with so many switches."""
    switches = {
        "plain": (),
        "fixed": (ONE,),
        "paper": (EARLY,),
        "more": (EARLY, FUSED, WAYS, ONE),
        "small": (EARLY, FUSED, ONE),
    }
    told: dict[str, Any] = {
        "small": {
            "idle": lambda spec, device: {
                "fused": f"it takes 8 rows of {device.name}, not {spec.rows}",
                "one": "it has one value",
            },
            "idle_in_draft": lambda *_: {"early": "it is of the layer"},
        }
    }

    def load(name: str) -> BackendSpec:
        made: BackendSpec = dataclasses.replace(
            BACKEND, name=name, switches=switches[name], **told.get(name, {})
        )
        return made

    monkeypatch.setattr(registry, "load", load)


def study(*arms: Arm, experiments: tuple[Experiment, ...] = (SERIAL,)) -> Study:
    """A study that edits graphs."""
    return msgspec.structs.replace(handmade.study(), arms=arms, experiments=experiments)


def test_one_switch_has_two_arms_of_which_one_is_there() -> None:
    """Alone is all on, and all but it is all off."""
    found = with_each_switch(study(Arm(backend="plain"), Arm(backend="paper")), DEVICE)
    assert found.switch_arms == (
        Arm(backend="paper", switches={"early": "off"}),
        Arm(
            backend="paper",
            switches={"early": "off"},
            label="paper:early=off (built again)",
        ),
    )
    assert found.taken_apart == (
        TakenApart(
            backend="paper",
            off="paper:early=off",
            on="paper",
            switches=(
                SwitchArms(
                    name="early",
                    only="paper",
                    without="paper:early=off",
                    toggles="when kernels load",
                    kind="overlap",
                    bitwise=True,
                    delayed="/gate_up",
                ),
            ),
            rebuilt="paper:early=off (built again)",
        ),
    )
    assert found.arms == (Arm(backend="plain"), Arm(backend="paper"))


def test_an_arm_that_was_given_is_not_made_twice() -> None:
    """Whatever way its switches were written."""
    given = (
        Arm(backend="paper", switches={"early": "off"}),
        Arm(backend="paper", switches={"early": "on"}),
    )
    found = with_each_switch(study(*given), DEVICE)
    assert [arm.name for arm in found.switch_arms] == ["paper:early=off (built again)"]
    (apart,) = found.taken_apart
    assert (apart.off, apart.on) == ("paper:early=off", "paper:early=on")


def test_more_switches_have_an_arm_each_way() -> None:
    """A switch of one value stays; one that is off by default is on at the next.

    An arm is called by its switches while one of them alone is not at its default.
    """
    found = with_each_switch(study(Arm(backend="more")), DEVICE)
    assert [(arm.name, arm.switches) for arm in found.switch_arms] == [
        ("more all off", {"early": "off", "fused": "off"}),
        ("more:ways=two", {"ways": "two"}),
        ("more:fused=off", {"fused": "off"}),
        ("more without early", {"early": "off", "ways": "two"}),
        ("more:early=off", {"early": "off"}),
        ("more without fused", {"fused": "off", "ways": "two"}),
        ("more only ways", {"early": "off", "fused": "off", "ways": "two"}),
        ("more all off (built again)", {"early": "off", "fused": "off"}),
    ]
    (apart,) = found.taken_apart
    assert (apart.off, apart.on) == ("more all off", "more:ways=two")
    assert [(each.name, each.only, each.without) for each in apart.switches] == [
        ("early", "more:fused=off", "more without early"),
        ("fused", "more:early=off", "more without fused"),
        ("ways", "more only ways", "more"),
    ]


def test_overlap_is_tried_on_twins_and_by_doses() -> None:
    """Twins of the four arms between which it is turned; doses of two of them."""
    found = with_each_switch(study(Arm(backend="more")), DEVICE)
    assert found.switch_experiments == {
        "more all off": (SERIAL,),
        "more:fused=off": (SERIAL,),
        "more without early": (SERIAL, *DOSES),
        "more:ways=two": (SERIAL, *DOSES),
    }


def test_where_no_graph_is_edited_nothing_is_asked() -> None:
    """As on a CPU, or with --no-experiments."""
    found = with_each_switch(study(Arm(backend="more"), experiments=()), DEVICE)
    assert found.switch_experiments == {}


def test_arms_without_switches_are_refused() -> None:
    """One that can only have one value is none."""
    with pytest.raises(InputError) as caught:
        with_each_switch(study(Arm(backend="plain"), Arm(backend="fixed")), DEVICE)
    assert str(caught.value) == (
        "--each-switch: no arm has switches (plain, fixed); name one that has some: "
        "layerscope backends lists them"
    )


NOT_FUSED = "it takes 8 rows of Paper GPU, not 6"


def test_a_switch_that_is_idle_has_no_arms_and_says_why() -> None:
    """It stays as it is in the arms of the others."""
    found = with_each_switch(study(Arm(backend="small")), DEVICE)
    assert [arm.name for arm in found.switch_arms] == [
        "small:early=off",
        "small:early=off (built again)",
    ]
    (apart,) = found.taken_apart
    assert (apart.off, apart.on) == ("small:early=off", "small")
    assert apart.switches == (
        SwitchArms(
            name="early",
            only="small",
            without="small:early=off",
            toggles="when kernels load",
            kind="overlap",
            bitwise=True,
            delayed="/gate_up",
        ),
        SwitchArms(name="fused", toggles="how many kernels", idle=NOT_FUSED),
    )


def test_a_draft_has_arms_of_its_own_and_no_dose_test() -> None:
    """What is idle in the layer may not be in the draft; delays name the layer's."""
    of = msgspec.structs.replace(study(Arm(backend="small")), draft=DRAFT)
    found = with_each_switch(of, DEVICE)
    assert found.draft_switches == SwitchStudy(
        taken_apart=(
            TakenApart(
                backend="small",
                off="small:fused=off",
                on="small",
                switches=(
                    SwitchArms(
                        name="early",
                        toggles="when kernels load",
                        kind="overlap",
                        bitwise=True,
                        idle="it is of the layer",
                    ),
                    SwitchArms(
                        name="fused",
                        only="small",
                        without="small:fused=off",
                        toggles="how many kernels",
                    ),
                ),
                rebuilt="small:fused=off (built again)",
            ),
        ),
        arms=(
            Arm(backend="small", switches={"fused": "off"}),
            Arm(
                backend="small",
                switches={"fused": "off"},
                label="small:fused=off (built again)",
            ),
        ),
    )
    of = msgspec.structs.replace(study(Arm(backend="paper")), draft=DRAFT)
    draft = with_each_switch(of, DEVICE).draft_switches
    assert draft is not None
    assert draft.experiments == {"paper:early=off": (SERIAL,), "paper": (SERIAL,)}
    assert [one.delayed for one in draft.taken_apart[0].switches] == [""]


def test_where_all_switches_are_idle_there_is_nothing_to_tell_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Refused with the reasons, before anything is made."""
    backend = dataclasses.replace(
        BACKEND,
        name="paper",
        switches=(EARLY,),
        idle=lambda *_: {"early": "no kernel loads"},
    )
    monkeypatch.setattr(registry, "load", lambda _: backend)
    with pytest.raises(InputError) as caught:
        with_each_switch(study(Arm(backend="paper")), DEVICE)
    assert str(caught.value) == (
        "--each-switch: there is nothing to tell apart; paper: early changes nothing "
        "here: no kernel loads"
    )


def test_a_backend_of_idle_switches_has_its_rows_beside_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And no arms."""
    load = registry.load

    def idle_paper(name: str) -> BackendSpec:
        if name != "paper":
            return load(name)
        idle = {"early": "no kernel loads"}
        return dataclasses.replace(load(name), idle=lambda *_: idle)

    monkeypatch.setattr(registry, "load", idle_paper)
    of = study(Arm(backend="paper"), Arm(backend="small"))
    found = with_each_switch(of, DEVICE)
    assert {arm.backend for arm in found.switch_arms} == {"small"}
    assert [(one.backend, one.off, one.on) for one in found.taken_apart] == [
        ("paper", "", ""),
        ("small", "small:early=off", "small"),
    ]
    assert set(found.switch_experiments) == {"small:early=off", "small"}


def test_a_backend_that_cannot_tell_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is refused where arms are checked, with all that speaks against it."""

    def tell(_: object, device: DeviceFacts) -> dict[str, str]:
        raise LookupError(device.name)

    backend = dataclasses.replace(BACKEND, name="paper", switches=(EARLY,), idle=tell)
    monkeypatch.setattr(registry, "load", lambda _: backend)
    found = with_each_switch(study(Arm(backend="paper")), DEVICE)
    assert [(one.name, one.idle) for one in found.taken_apart[0].switches] == [
        ("early", "")
    ]
    assert registry.reasons(backend, found.arms[0], SPEC, DEVICE) == [
        "cannot be checked (LookupError: Paper GPU); tell its author"
    ]


def test_a_backend_that_refuses_the_layer_is_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may know nothing of such a layer; the reasons against it come later."""

    def tell(*_: object) -> dict[str, str]:
        raise AssertionError

    backend = dataclasses.replace(
        BACKEND,
        name="paper",
        switches=(EARLY,),
        check=lambda *_: ["takes heads of 64 elements, not 80"],
        idle=tell,
        idle_in_draft=tell,
    )
    monkeypatch.setattr(registry, "load", lambda _: backend)
    of = msgspec.structs.replace(study(Arm(backend="paper")), draft=DRAFT)
    found = with_each_switch(of, DEVICE)
    assert found.switch_arms[0] == Arm(backend="paper", switches={"early": "off"})
