import sys
from types import SimpleNamespace

import pytest
import torch

from layerscope.errors import InputError
from layerscope.record import recorders
from layerscope.record.torch_profiler import TorchProfilerRecorder

CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


class PaperCupti:
    """Stands for the recorder that needs a GPU to be imported."""


@pytest.fixture
def cupti(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine with a GPU and everything installed."""
    monkeypatch.setattr(recorders, "has_cuda_bindings", lambda device: device == GPU)
    monkeypatch.setattr(recorders, "find_spec", lambda name: name)
    fake = SimpleNamespace(CuptiRecorder=PaperCupti)
    monkeypatch.setitem(sys.modules, "layerscope.record.cupti", fake)


@pytest.mark.usefixtures("cupti")
@pytest.mark.parametrize(
    ("name", "device", "expected"),
    [
        ("auto", GPU, PaperCupti),
        ("cupti", GPU, PaperCupti),
        ("torch.profiler", GPU, TorchProfilerRecorder),
        ("auto", CPU, TorchProfilerRecorder),
        ("torch.profiler", CPU, TorchProfilerRecorder),
    ],
)
def test_cupti_watches_gpus_and_torch_the_rest(
    name: str, device: torch.device, expected: type
) -> None:
    """``auto`` takes CUPTI where it can be used; a name is obeyed."""
    assert type(recorders.recorder_for(name, device)) is expected


@pytest.mark.usefixtures("cupti")
def test_none_records_nothing() -> None:
    """Anchors alone can be measured."""
    assert recorders.recorder_for("none", GPU) is None


def test_without_the_package_a_gpu_is_watched_by_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The bindings of CUDA alone are not enough for CUPTI."""
    monkeypatch.setattr(recorders, "has_cuda_bindings", lambda _: True)
    monkeypatch.setattr(recorders, "find_spec", lambda _: None)
    found = recorders.recorder_for("auto", GPU)
    assert isinstance(found, TorchProfilerRecorder)
    with pytest.raises(InputError, match="needs an NVIDIA GPU and the cuda extra"):
        recorders.recorder_for("cupti", GPU)


@pytest.mark.usefixtures("cupti")
def test_cupti_cannot_watch_a_cpu() -> None:
    """Asked for by name it is refused, with what to use instead."""
    with pytest.raises(InputError, match=r"use --recorder torch\.profiler"):
        recorders.recorder_for("cupti", CPU)


def test_unknown_recorders_are_refused_with_the_known_ones() -> None:
    """Also on a device that would have needed none."""
    with pytest.raises(InputError) as raised:
        recorders.recorder_for("nsys", CPU)
    assert str(raised.value) == (
        "unknown recorder 'nsys'; use one of auto, cupti, torch.profiler, none"
    )
