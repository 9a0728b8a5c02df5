import sys

import pytest
import torch

import layerscope.doctor.machine
from layerscope.doctor import examine, software
from layerscope.errors import InputError
from layerscope.report.diagnosis import Diagnosis, Finding, Section, State

PLAIN = Finding("torch", State.MISSING, "not installed", blocks=True)


@pytest.mark.parametrize("name", ["gpu", "cuda:1", ""])
def test_unknown_devices_are_refused_with_the_known_ones(name: str) -> None:
    """The names are those of ``layerscope profile``."""
    with pytest.raises(InputError) as raised:
        examine(name)
    assert str(raised.value) == f"unknown device {name!r}; use one of auto, cpu, cuda"


def test_a_plain_install_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that needs torch is asked, and one line says how to get it."""
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setitem(sys.modules, "layerscope.doctor.machine", None)
    diagnosis = examine("auto")
    assert diagnosis.device is None
    assert not diagnosis.is_ready
    assert [finding.topic for finding in diagnosis.blocking] == ["torch"]
    states = {finding.topic: finding.state for finding in diagnosis.findings}
    assert states == {
        "Python": State.OK,
        "torch": State.MISSING,
        "safetensors": State.OK,
        "backends": State.NOT_APPLICABLE,
        "GPU": State.NOT_APPLICABLE,
        "CPU": State.NOT_APPLICABLE,
    }


def test_sections_follow_the_software(monkeypatch: pytest.MonkeyPatch) -> None:
    """The device's own sections come after what runs on it."""
    section = Section("device", (Finding("GPU", State.OK, "Paper GPU"),))
    asked: list[str] = []

    def sections(wanted: str) -> tuple[None, tuple[Section, ...]]:
        asked.append(wanted)
        return None, (section,)

    monkeypatch.setattr(layerscope.doctor.machine, "sections", sections)
    diagnosis = examine("cuda")
    assert asked == ["cuda"]
    assert [item.title for item in diagnosis.sections] == ["software", "device"]
    assert [item.topic for item in diagnosis.sections[0].findings] == [
        "Python",
        "torch",
        "safetensors",
        "backends",
    ]


def test_a_study_can_be_run_on_this_cpu() -> None:
    """Without any fake: where these tests run, a CPU can be measured."""
    diagnosis = examine("cpu")
    assert diagnosis.is_ready
    assert diagnosis.device is not None
    assert diagnosis.device.type == "cpu"
    states = {finding.topic: finding.state for finding in diagnosis.findings}
    assert states["torch"] is states["torch.profiler"] is State.OK
    assert states["CUPTI"] is states["clocks"] is State.NOT_APPLICABLE
    assert torch.get_num_threads() == diagnosis.device.processors


def test_readiness_is_that_nothing_blocks() -> None:
    """Limits and missing parts are no reason not to measure."""
    limited = Finding("clocks", State.LIMITED, "hot")
    missing = Finding("nvtx", State.MISSING, "not installed")
    ready = Diagnosis(None, (Section("all", (limited, missing)),))
    assert ready.is_ready
    assert not Diagnosis(None, (Section("all", (limited, PLAIN)),)).is_ready


def test_software_blocks_like_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without safetensors profile does not start, whatever the device."""
    lacking = Finding("safetensors", State.MISSING, "not installed", blocks=True)
    monkeypatch.setattr(software, "safetensors", lambda: lacking)
    assert examine("cpu").blocking == (lacking,)
