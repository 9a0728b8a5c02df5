import sys
from collections.abc import Iterable
from types import ModuleType

import pytest
import torch

from layerscope.doctor import compilers, driver, gpu, graph_features, machine, recording
from layerscope.doctor.gpu_state import GpuState, Unreadable
from layerscope.environment import DeviceFacts
from layerscope.report.diagnosis import Finding, Section, State

NVIDIA = DeviceFacts(
    type="cuda", name="Paper GPU", uuid="0a1b", architecture="sm_90", runtime="13.0"
)
PAPER = DeviceFacts(type="cpu", name="Paper CPU", memory_bytes=16_000_000_000)
AMD = DeviceFacts(type="hip", name="Paper AMD", architecture="gfx942", runtime="7.0")
STATE = GpuState(driver="580", cuda=(13, 0), gpus=1, sm_clock_mhz=345, event_reasons=1)
ABSENT = Unreadable("nvidia-ml-py is not installed", is_installed=False)


class Machine:
    """What a test may change of a machine with one GPU."""

    facts = NVIDIA
    state: GpuState | Unreadable = STATE
    refusals: tuple[str, ...] = ()
    has_bindings = True
    lacking: tuple[str, ...] = ()
    built_for: tuple[str, ...] = ("sm_80", "sm_90", "gfx942")
    unfit = ""

    def __init__(self) -> None:
        """Nothing was tried yet."""
        self.tried: list[str] = []

    def note(self, what: str, answer: object = "") -> object:
        """Note that something was tried on the GPU."""
        self.tried.append(what)
        return answer


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine with one GPU on which every try works."""
    here = Machine()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: list(here.built_for))
    monkeypatch.setattr(
        machine, "facts", lambda device: PAPER if device.type == "cpu" else here.facts
    )
    monkeypatch.setattr(machine, "refusals", lambda _: list(here.refusals))
    monkeypatch.setattr(machine, "read_gpu", lambda *_: here.state)
    monkeypatch.setattr(driver, "supported_cuda", lambda _: (13, 0))
    monkeypatch.setattr(machine, "has_cuda_bindings", lambda _: here.has_bindings)
    monkeypatch.setattr(recording, "cupti_packages", lambda _: list(here.lacking))
    monkeypatch.setattr(recording, "unfit", lambda _: here.unfit)
    for name in ("try_cupti", "try_torch_profiler"):
        monkeypatch.setattr(recording, name, lambda _, name=name: here.note(name))
    features = tuple(Finding(t, State.OK, "works") for t in graph_features.TOPICS)
    monkeypatch.setattr(
        graph_features, "findings", lambda *_: here.note("features", features)
    )
    nvrtc = Finding("NVRTC", State.OK, "13.0")
    monkeypatch.setattr(compilers, "nvrtc", lambda *_: here.note("nvrtc", nvrtc))
    for name in ("cuda", "cuda.bindings", "cuda.bindings.runtime"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    library = ModuleType("cuda.bindings.nvrtc")
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", library)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.version, "hip", None)
    for variable in (*gpu._VARIABLES, *gpu._HIDING):
        monkeypatch.delenv(variable, raising=False)
    return here


def states(sections: Iterable[Section]) -> dict[str, State]:
    """State by topic; every topic comes once."""
    findings = [item for section in sections for item in section.findings]
    found = {finding.topic: finding.state for finding in findings}
    assert len(found) == len(findings)
    return found


def blocking(sections: Iterable[Section]) -> list[str]:
    """Topics that let no study run."""
    return [f.topic for section in sections for f in section.findings if f.blocks]


TOPICS = {
    *("GPU", "CPU", "load", "driver", "NVML", "clocks"),
    *("MPS", "MIG", "other processes", "variables", "peer access", "ROCm"),
    "torch kernels",
    *("torch.profiler", "CUPTI", "nvtx"),
    *("cuda-bindings", "keep_graph", "edge data", "node enable", "edge removal"),
    *("programmatic edges", "NVRTC", "C++ compiler", "C compiler", "Triton", "nvcc"),
}


def test_a_gpu_of_our_own_is_tried(here: Machine) -> None:
    """CUPTI before torch.profiler; every topic is told."""
    facts, sections = machine.sections("auto")
    assert facts == NVIDIA
    assert [item.title for item in sections] == [
        "device",
        "recording",
        "graphs",
        "compilers",
    ]
    assert set(states(sections)) == TOPICS
    assert here.tried == ["try_cupti", "try_torch_profiler", "features", "nvrtc"]
    assert blocking(sections) == []


@pytest.mark.usefixtures("here")
def test_the_cpu_is_measured_where_it_is_asked_for() -> None:
    """The GPU is not even looked at, and every topic is told all the same."""
    facts, sections = machine.sections("cpu")
    assert facts == PAPER
    found = states(sections)
    assert set(found) == TOPICS
    assert found["GPU"] is found["NVML"] is State.NOT_APPLICABLE
    assert found["CPU"] in (State.OK, State.LIMITED)


def test_nothing_is_tried_on_a_gpu_that_others_use(here: Machine) -> None:
    """A refusal blocks, and no kernel of ours disturbs them."""
    here.refusals = ("other processes compute on this GPU: 4711",)
    facts, sections = machine.sections("auto")
    assert facts == NVIDIA
    assert blocking(sections) == ["other processes"]
    assert here.tried == []
    found = states(sections)
    assert set(found) == TOPICS
    for topic in ("CUPTI", "torch.profiler", "keep_graph", "NVRTC"):
        assert found[topic] is State.NOT_APPLICABLE


def test_nothing_is_tried_where_torch_has_no_kernels(here: Machine) -> None:
    """A missing kernel image is told as that, and not as a missing keep_graph."""
    here.built_for = ("sm_75", "sm_100")
    _, sections = machine.sections("auto")
    assert blocking(sections) == ["torch kernels"]
    assert here.tried == []
    found = states(sections)
    assert set(found) == TOPICS
    for topic in ("CUPTI", "torch.profiler", "keep_graph", "NVRTC"):
        assert found[topic] is State.NOT_APPLICABLE


def test_without_bindings_only_torch_is_tried(here: Machine) -> None:
    """A study runs without them, mapped by order."""
    here.has_bindings = False
    here.lacking = ("cuda-bindings",)
    _, sections = machine.sections("cuda")
    assert here.tried == ["try_torch_profiler"]
    found = states(sections)
    assert found["CUPTI"] is State.MISSING
    assert found["keep_graph"] is found["NVRTC"] is State.NOT_APPLICABLE
    assert blocking(sections) == []


def test_a_cupti_that_is_too_new_is_not_tried(here: Machine) -> None:
    """It is known to fail, and how it fails is its own choice."""
    here.unfit = "newer than the driver"
    _, sections = machine.sections("cuda")
    assert "try_cupti" not in here.tried
    assert states(sections)["CUPTI"] is State.LIMITED


def test_an_amd_gpu_is_tried_through_torch_alone(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is NVIDIA's has no meaning; what is not known of AMD is a limit."""
    here.facts, here.state, here.has_bindings = AMD, ABSENT, False
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", "7.0")
    facts, sections = machine.sections("auto")
    assert facts == AMD
    assert here.tried == ["try_torch_profiler"]
    found = states(sections)
    assert set(found) == TOPICS
    assert found["ROCm"] is found["other processes"] is State.LIMITED
    for topic in ("driver", "NVML", "CUPTI", "cuda-bindings", "MIG", "NVRTC"):
        assert found[topic] is State.NOT_APPLICABLE


def test_a_gpu_that_does_not_answer_is_a_finding(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is listed, and raises when it is touched."""

    def fail() -> int:
        msg = "CUDA error: all CUDA-capable devices are busy\nadvice"
        raise RuntimeError(msg)

    monkeypatch.setattr(torch.cuda, "current_device", fail)
    facts, sections = machine.sections("auto")
    assert facts is None
    assert blocking(sections) == ["GPU"]
    assert here.tried == []


def test_a_driver_that_is_too_old_is_told_beside_the_gpu(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That none is found says little; the versions say why."""
    here.state = GpuState(driver="550", cuda=(12, 4), gpus=1)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(driver, "supported_cuda", lambda _: (12, 4))
    _, sections = machine.sections("auto")
    found = states(sections)
    assert (found["GPU"], found["driver"]) == (State.LIMITED, State.MISSING)
    assert set(found) == TOPICS
    assert blocking(sections) == []
    facts, sections = machine.sections("cuda")
    assert facts is None
    assert states(sections) == {"GPU": State.MISSING, "driver": State.MISSING}
    assert blocking(sections) == ["GPU"]


def test_a_machine_without_any_gpu_measures_its_cpu(
    here: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default that is no fault at all."""
    here.state = ABSENT
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", None)
    facts, sections = machine.sections("auto")
    assert facts == PAPER
    found = states(sections)
    assert set(found) == TOPICS
    assert found["GPU"] is State.NOT_APPLICABLE
    assert blocking(sections) == []
    facts, sections = machine.sections("cuda")
    assert facts is None
    assert blocking(sections) == ["GPU"]
