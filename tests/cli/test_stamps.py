from dataclasses import replace

import pytest

from layerscope import registry
from layerscope.cli.stamps import with_stamps
from layerscope.errors import InputError
from layerscope.layers.reference import BACKEND
from layerscope.plugin import BackendSpec
from layerscope.study import Arm, Study
from tests import handmade

OFF = Arm(backend="paper", switches={"early": "off"})


@pytest.fixture(autouse=True)
def _backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """``paper`` has stamps, and no other backend has."""

    def load(name: str) -> BackendSpec:
        return replace(BACKEND, name=name, stamps=name == "paper")

    monkeypatch.setattr(registry, "load", load)


def study(*arms: Arm) -> Study:
    """A study of `arms`."""
    return Study(spec=handmade.study().spec, arms=arms)


def test_every_arm_that_can_is_built_once_more_with_stamps() -> None:
    """With its switches; it is compared with no other."""
    found = with_stamps(study(Arm(backend="plain"), Arm(backend="paper"), OFF))
    assert found.arms == (Arm(backend="plain"), Arm(backend="paper"), OFF)
    assert found.stamp_arms == (
        Arm(backend="paper", stamps=True),
        Arm(backend="paper", switches={"early": "off"}, stamps=True),
    )
    assert [arm.name for arm in found.built_arms] == [
        *("plain", "paper", "paper:early=off"),
        *("paper, with stamps", "paper:early=off, with stamps"),
    ]


def test_a_study_whose_backends_have_none_is_refused() -> None:
    """Naming them."""
    with pytest.raises(InputError) as caught:
        with_stamps(study(Arm(backend="plain"), Arm(backend="more")))
    assert str(caught.value) == (
        "--stamps: no arm has stamps (plain, more); leave it out"
    )


def test_an_arm_that_failed_is_left_out() -> None:
    """The others stay."""
    found = with_stamps(study(Arm(backend="paper"), OFF)).keeping(
        {"paper", "paper:early=off", "paper, with stamps"}
    )
    assert found.stamp_arms == (Arm(backend="paper", stamps=True),)
