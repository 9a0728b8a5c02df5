import sys
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace

import pytest

from layerscope.record.nvtx import NvtxObserver, arm_range
from layerscope.regions import Region, layer_pass, observing, region


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What ``nvtx`` is told, by a fake of it."""
    told: list[str] = []

    def push(label: str, *, domain: str) -> None:
        told.append(f"{domain} + {label}")

    def pop(*, domain: str) -> None:
        told.append(f"{domain} -")

    def annotate(label: str, *, domain: str) -> AbstractContextManager[None]:
        told.append(f"{domain} = {label}")
        return nullcontext()

    fake = SimpleNamespace(push_range=push, pop_range=pop, annotate=annotate)
    monkeypatch.setitem(sys.modules, "nvtx", fake)
    return told


def test_marks_become_nested_ranges_of_our_domain(ranges: list[str]) -> None:
    """Every pass and region pushes its label, and pops it when it closes."""
    with observing(NvtxObserver()), layer_pass(2), region(Region.MOE):
        pass
    assert ranges == [
        "layerscope + layerscope:pass:2",
        "layerscope + layerscope:region:moe",
        *["layerscope -"] * 2,
    ]


def test_an_arm_has_a_range_of_its_own(ranges: list[str]) -> None:
    """Under the name that reports show."""
    with arm_range("fused:pdl=stock"):
        pass
    assert ranges == ["layerscope = layerscope:arm:fused:pdl=stock"]


def test_without_nvtx_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The package is optional; marks are still marks."""
    monkeypatch.setitem(sys.modules, "nvtx", None)
    seen = []
    with arm_range("reference"), observing(NvtxObserver()), region(Region.MOE):
        seen.append("body")
    assert seen == ["body"]
