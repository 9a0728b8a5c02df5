import dataclasses

import msgspec
import pytest

from layerscope import registry
from layerscope.cli.each_switch import DOSES_NS, with_each_switch
from layerscope.errors import InputError
from layerscope.experiment import SERIAL, Experiment
from layerscope.layers.reference import BACKEND
from layerscope.plugin import BackendSpec, Switch, SwitchKind
from layerscope.study import Arm, Study
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
DOSES = tuple(Experiment(delay="/gate_up", delay_ns=dose) for dose in DOSES_NS)


@pytest.fixture(autouse=True)
def _backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Backends with so many switches."""
    switches = {
        "plain": (),
        "fixed": (ONE,),
        "paper": (EARLY,),
        "more": (EARLY, FUSED, WAYS, ONE),
    }

    def load(name: str) -> BackendSpec:
        made: BackendSpec = dataclasses.replace(
            BACKEND, name=name, switches=switches[name]
        )
        return made

    monkeypatch.setattr(registry, "load", load)


def study(*arms: Arm, experiments: tuple[Experiment, ...] = (SERIAL,)) -> Study:
    """A study that edits graphs."""
    return msgspec.structs.replace(handmade.study(), arms=arms, experiments=experiments)


def test_one_switch_has_two_arms_of_which_one_is_there() -> None:
    """Alone is all on, and all but it is all off."""
    found = with_each_switch(study(Arm(backend="plain"), Arm(backend="paper")))
    assert found.switch_arms == (
        Arm(backend="paper", switches={"early": "off"}),
        Arm(
            backend="paper",
            switches={"early": "off"},
            label="paper:early=off, built again",
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
            rebuilt="paper:early=off, built again",
        ),
    )
    assert found.arms == (Arm(backend="plain"), Arm(backend="paper"))


def test_an_arm_that_was_given_is_not_made_twice() -> None:
    """Whatever way its switches were written."""
    given = (
        Arm(backend="paper", switches={"early": "off"}),
        Arm(backend="paper", switches={"early": "on"}),
    )
    found = with_each_switch(study(*given))
    assert [arm.name for arm in found.switch_arms] == ["paper:early=off, built again"]
    (apart,) = found.taken_apart
    assert (apart.off, apart.on) == ("paper:early=off", "paper:early=on")


def test_more_switches_have_an_arm_each_way() -> None:
    """A switch of one value stays; one that is off by default is on at the next.

    An arm is called by its switches while one of them alone is not at its default.
    """
    found = with_each_switch(study(Arm(backend="more")))
    assert [(arm.name, arm.switches) for arm in found.switch_arms] == [
        ("more all off", {"early": "off", "fused": "off"}),
        ("more:ways=two", {"ways": "two"}),
        ("more:fused=off", {"fused": "off"}),
        ("more without early", {"early": "off", "ways": "two"}),
        ("more:early=off", {"early": "off"}),
        ("more without fused", {"fused": "off", "ways": "two"}),
        ("more only ways", {"early": "off", "fused": "off", "ways": "two"}),
        ("more all off, built again", {"early": "off", "fused": "off"}),
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
    found = with_each_switch(study(Arm(backend="more")))
    assert found.switch_experiments == {
        "more all off": (SERIAL,),
        "more:fused=off": (SERIAL,),
        "more without early": (SERIAL, *DOSES),
        "more:ways=two": (SERIAL, *DOSES),
    }


def test_where_no_graph_is_edited_nothing_is_asked() -> None:
    """As on a CPU, or with --no-experiments."""
    found = with_each_switch(study(Arm(backend="more"), experiments=()))
    assert found.switch_experiments == {}


def test_arms_without_switches_are_refused() -> None:
    """One that can only have one value is none."""
    with pytest.raises(InputError) as caught:
        with_each_switch(study(Arm(backend="plain"), Arm(backend="fixed")))
    assert str(caught.value) == (
        "--each-switch: no arm has switches (plain, fixed); name one that has some: "
        "layerscope backends lists them"
    )
