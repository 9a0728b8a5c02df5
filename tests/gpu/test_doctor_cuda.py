import pytest

pytest.importorskip("cupti", reason="the cuda extra is not installed")
pytest.importorskip("pynvml", reason="the cuda extra is not installed")

import torch

from layerscope.doctor import examine
from layerscope.report.diagnosis import Diagnosis, Finding, State


@pytest.fixture(scope="module")
def diagnosis() -> Diagnosis:
    return examine("cuda")


def finding(diagnosis: Diagnosis, topic: str) -> Finding:
    """What was found of one topic."""
    (found,) = [item for item in diagnosis.findings if item.topic == topic]
    return found


def test_the_gpu_here_can_be_measured(diagnosis: Diagnosis) -> None:
    """Tests of GPUs run where a study could."""
    assert diagnosis.blocking == ()
    assert diagnosis.device is not None
    assert diagnosis.device.type == "cuda"


@pytest.mark.parametrize(
    "topic",
    [
        *("GPU", "driver", "NVML", "MPS", "MIG", "other processes"),
        *("torch.profiler", "CUPTI"),
        "cuda-bindings",
        *("keep_graph", "edge data", "node enable", "edge removal"),
        *("NVRTC", "C compiler", "Triton"),
    ],
)
def test_a_topic_is_ok(diagnosis: Diagnosis, topic: str) -> None:
    """Each was tried for real, and what was found says so."""
    found = finding(diagnosis, topic)
    assert found.state is State.OK, found


def test_clocks_are_told(diagnosis: Diagnosis) -> None:
    """Both of them; whether they are held down depends on what ran before."""
    found = finding(diagnosis, "clocks")
    assert found.state in (State.OK, State.LIMITED), found
    assert "SM " in found.found
    assert "memory " in found.found


def test_trying_leaves_the_gpu_as_it_was(diagnosis: Diagnosis) -> None:
    """Torch still computes afterwards, and a second examination finds the same."""
    assert torch.ones(8, device="cuda").sum().item() == 8
    again = examine("cuda")
    states = {found.topic: found.state for found in diagnosis.findings}
    assert {
        found.topic: found.state for found in again.findings if found.topic != "clocks"
    } == {topic: state for topic, state in states.items() if topic != "clocks"}
