"""What the suite asks of a backend whose switches change nothing."""

import random
from typing import Any

import pytest
import torch

from layerscope.layers.problem import Problem
from layerscope.layers.reference import BACKEND
from layerscope.plugin import BackendSpec, BuildContext, Built, Switch
from layerscope.regions import Region
from layerscope.testing import check_backend
from tests.testing.paper import SPEC, WHERE, failures, paper

FAST = Switch(name="fast", values=("no", "yes"), toggles="haste")
TOLD = {"fast": "there are no experts"}


def scaling(scale: float, **fields: Any) -> BackendSpec:  # noqa: ANN401 (fields of the spec)
    """A backend whose switch scales the output by `scale`."""

    def build(context: BuildContext) -> Built:
        def spoil(problem: Problem, region: Region, index: int) -> None:
            if region is Region.MOE and context.switches["fast"] == "yes":
                problem.buffers[index].out.mul_(scale)

        return paper(spoil).build(context)

    return paper(build=build, switches=(FAST,), **fields)


def test_a_switch_that_is_idle_passes() -> None:
    """On the layer, at each of its values."""
    found = check_backend(scaling(1.0, idle=lambda *_: TOLD), specs=[SPEC])
    assert len(found.checked) == 2


def test_a_switch_that_is_idle_must_leave_every_bit() -> None:
    """Whatever it says of its bits: the same kernels are to run."""
    scale = 1.0 + 2.0**-20  # within the bound
    assert check_backend(scaling(scale), specs=[SPEC]).failures == []
    place = WHERE.replace("paper on", "paper:fast=yes on")
    assert failures(scaling(scale, idle=lambda *_: TOLD)) == [
        f"{place}its results are not bit for bit those at the default"
    ]


@pytest.mark.parametrize(
    ("answer", "failure"),
    [
        ({"late": "is late"}, "idle names late, which is no switch of it"),
        (None, "idle answered None: it must map switches to reasons"),
        ({"fast": ""}, "idle says of fast '', which is not one line of text"),
        ({"fast": "a\nb"}, "idle says of fast 'a\\nb', which is not one line of text"),
    ],
)
def test_what_is_idle_is_a_switch_and_has_a_reason(
    answer: dict[str, str] | None, failure: str
) -> None:
    """A report says of each that it changes nothing, and why."""
    found = failures(paper(switches=(FAST,), idle=lambda *_: answer))
    assert [line.endswith(failure) for line in found] == [True]


@pytest.mark.parametrize("what", ["idle", "idle_in_draft"])
def test_what_is_idle_is_told_without_computing_and_always_alike(what: str) -> None:
    """It is asked before anything is made."""
    draws = random.Random(5)  # noqa: S311 (not a secret)

    def moody(*_: object) -> dict[str, str]:
        torch.zeros(3)
        return {"fast": f"is in mood {draws.random()}"}

    fields: dict[str, Any] = {"build_draft": BACKEND.build_draft, what: moody}
    found = " ".join(failures(paper(switches=(FAST,), **fields)))
    assert f"{what} ran aten" in found
    assert f"{what} answered twice with two things" in found
