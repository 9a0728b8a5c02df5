import pytest
import torch

from layerscope.environment import DeviceFacts
from layerscope.errors import MeasurementError
from layerscope.graphs import device as devices
from layerscope.selftest import machine


def test_without_a_gpu_the_line_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs one, and why there is none."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(MeasurementError) as caught:
        machine.usable_device()
    assert str(caught.value) == (
        "selftest runs CUDA kernels of its own and needs an NVIDIA GPU: torch finds "
        "none here"
    )


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A GPU that torch says there is, of the year before programmatic launches."""
    device = torch.device("cuda", 0)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Paper GPU")
    monkeypatch.setattr(devices, "resolve", lambda _: device)
    monkeypatch.setattr(devices, "refusals", lambda _: ["MIG is enabled"])
    monkeypatch.setattr(machine, "has_cuda_bindings", lambda _: False)
    return device


@pytest.mark.usefixtures("gpu")
def test_all_reasons_against_a_gpu_are_told_at_once() -> None:
    """What it lacks, what state it is in, and what is not installed."""
    with pytest.raises(MeasurementError) as caught:
        machine.usable_device()
    assert str(caught.value) == (
        "MIG is enabled; Paper GPU has no programmatic launches (before sm_90); "
        "selftest needs the cuda extra: pip install 'layerscope[cuda]'"
    )


def test_a_gpu_without_a_reason_against_it_is_used(
    monkeypatch: pytest.MonkeyPatch, gpu: torch.device
) -> None:
    """The current one."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(devices, "refusals", lambda _: [])
    monkeypatch.setattr(machine, "has_cuda_bindings", lambda _: True)
    monkeypatch.setattr(machine, "find_spec", lambda _: DeviceFacts)
    assert machine.usable_device() == gpu
