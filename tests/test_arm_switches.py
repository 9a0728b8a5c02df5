from dataclasses import replace

from layerscope.arm_switches import check_switches, switch_values
from layerscope.layers.reference import BACKEND
from layerscope.plugin import BackendSpec, Switch
from layerscope.study import Arm


def paper() -> BackendSpec:
    """A backend on paper with two switches."""
    pdl = Switch(name="pdl", values=("on", "off", "stock"), toggles="launch")
    split = Switch(name="split", values=("1", "2"), toggles="split of the KV")
    return replace(BACKEND, name="paper", switches=(pdl, split))


def test_switches_that_exist_are_no_reason_against_an_arm() -> None:
    """Any allowed value, and those that are not set."""
    assert check_switches(Arm(backend="paper"), paper()) == []
    arm = Arm(backend="paper", switches={"pdl": "stock", "split": "2"})
    assert check_switches(arm, paper()) == []


def test_every_wrong_switch_is_a_reason() -> None:
    """Unknown names and unknown values, all at once."""
    switches = {"pdl": "maybe", "early": "on", "split": "1"}
    assert check_switches(Arm(backend="paper", switches=switches), paper()) == [
        "needs pdl to be one of on, off, stock, not maybe",
        "has no switch early; it has pdl, split",
    ]
    assert check_switches(
        Arm(backend="reference", switches={"pdl": "on"}), BACKEND
    ) == ["has no switch pdl; it has none"]


def test_a_switch_that_is_not_set_has_its_first_value() -> None:
    """Of every switch that the backend has."""
    arm = Arm(backend="paper", switches={"split": "2"})
    assert switch_values(arm, paper()) == {"pdl": "on", "split": "2"}
