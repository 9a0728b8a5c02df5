from dataclasses import replace

import pytest

from layerscope import registry
from layerscope.cli.stamps import with_stamps
from layerscope.errors import InputError
from layerscope.layers.reference import BACKEND
from layerscope.layers.spec import LayerSpec
from layerscope.plugin import BackendSpec
from layerscope.regions import Region
from layerscope.study import Arm, Study
from tests import handmade

OFF = Arm(backend="paper", switches={"early": "off"})


@pytest.fixture(autouse=True)
def _backends(monkeypatch: pytest.MonkeyPatch) -> None:
    """``paper`` has stamps, ``elsewhere`` too, but no region; no other has any."""

    def load(name: str) -> BackendSpec:
        made: BackendSpec = replace(
            BACKEND,
            name=name,
            stamps=name != "plain",
            declines=decline if name == "elsewhere" else None,
        )
        return made

    monkeypatch.setattr(registry, "load", load)


def decline(spec: LayerSpec) -> dict[Region, str]:
    """All regions."""
    return dict.fromkeys(spec.regions, "runs 4 rows, not 6")


def stamped(*arms: Arm) -> Study:
    """A study of `arms`, with those that have stamps."""
    spec = handmade.study().spec
    assert isinstance(spec, LayerSpec)
    return with_stamps(Study(spec=spec, arms=arms), spec)


def test_every_arm_that_can_is_built_once_more_with_stamps() -> None:
    """With its switches; it is compared with no other."""
    found = stamped(Arm(backend="plain"), Arm(backend="paper"), OFF)
    assert found.arms == (Arm(backend="plain"), Arm(backend="paper"), OFF)
    assert found.stamp_arms == (
        Arm(backend="paper", stamps=True),
        Arm(backend="paper", switches={"early": "off"}, stamps=True),
    )
    assert [arm.name for arm in found.built_arms] == [
        *("plain", "paper", "paper:early=off"),
        *("paper (stamps)", "paper:early=off (stamps)"),
    ]


def test_a_study_whose_backends_have_none_is_refused() -> None:
    """With the reason of each arm."""
    with pytest.raises(InputError) as caught:
        stamped(Arm(backend="plain"), Arm(backend="elsewhere"))
    assert str(caught.value) == (
        "--stamps: plain has no stamps; elsewhere runs no region here (runs 4 rows, "
        "not 6); name an arm that has some: layerscope backends lists them"
    )


def test_an_arm_that_runs_nothing_itself_has_no_stamps() -> None:
    """The fallback's kernels would be asked for what they do not note."""
    found = stamped(Arm(backend="paper"), Arm(backend="elsewhere"))
    assert [arm.backend for arm in found.stamp_arms] == ["paper"]


def test_an_arm_that_failed_is_left_out() -> None:
    """The others stay."""
    found = stamped(Arm(backend="paper"), OFF).keeping(
        {"paper", "paper:early=off", "paper (stamps)"}
    )
    assert found.stamp_arms == (Arm(backend="paper", stamps=True),)
