import sys
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from layerscope.doctor.gpu_state import GpuState, Unreadable, read_gpu

UUID = "0a1b"


class NVMLError(Exception):
    """What every failing call raises."""


class FakeNvml(SimpleNamespace):
    """``pynvml`` with one GPU; calls named in `unsupported` fail."""

    def __init__(self) -> None:
        self.unsupported: set[str] = set()
        now, most = {"SM": 345, "MEM": 2619}, {"SM": 1980, "MEM": 3201}
        answers: dict[str, Callable[..., object]] = {
            "nvmlInit": lambda: None,
            "nvmlSystemGetDriverVersion": lambda: "580.159.04",
            "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByUUID": {f"GPU-{UUID}": "gpu"}.__getitem__,
            "nvmlDeviceGetClockInfo": lambda _, kind: now[kind],
            "nvmlDeviceGetMaxClockInfo": lambda _, kind: most[kind],
            "nvmlDeviceGetCurrentClocksEventReasons": {"gpu": 1}.__getitem__,
            "nvmlDeviceGetPersistenceMode": {"gpu": 1}.__getitem__,
        }
        super().__init__(
            NVML_CLOCK_SM="SM",
            NVML_CLOCK_MEM="MEM",
            NVMLError=NVMLError,
            **{name: self._call(name, answer) for name, answer in answers.items()},
        )

    def _call(self, name: str, answer: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            if name in self.unsupported:
                msg = f"{name} Not Supported"
                raise NVMLError(msg)
            return answer(*arguments)

        return call


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    """A machine on which ``import pynvml`` gives the fake."""
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    return fake


WHOLE = GpuState(
    driver="580.159.04",
    cuda=(13, 0),
    gpus=1,
    sm_clock_mhz=345,
    max_sm_clock_mhz=1980,
    memory_clock_mhz=2619,
    max_memory_clock_mhz=3201,
    event_reasons=1,
    persistence=True,
)


@pytest.mark.usefixtures("nvml")
def test_driver_and_clocks_are_read_in_one_go() -> None:
    """Every field has the answer of its own call."""
    assert read_gpu(UUID) == WHOLE


@pytest.mark.usefixtures("nvml")
def test_without_a_gpu_of_torch_only_the_driver_is_read() -> None:
    """A driver can be there where torch is not built for it."""
    assert read_gpu() == GpuState(driver="580.159.04", cuda=(13, 0), gpus=1)


def test_what_nvml_does_not_support_is_unknown(nvml: FakeNvml) -> None:
    """Virtual GPUs answer only part of the questions."""
    nvml.unsupported = {
        "nvmlSystemGetCudaDriverVersion_v2",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetPersistenceMode",
    }
    assert read_gpu(UUID) == GpuState(
        driver="580.159.04", gpus=1, sm_clock_mhz=345, memory_clock_mhz=2619
    )


def test_a_gpu_that_nvml_does_not_know_has_no_clocks(nvml: FakeNvml) -> None:
    """The driver is told all the same."""
    nvml.unsupported = {"nvmlDeviceGetHandleByUUID"}
    assert read_gpu(UUID) == GpuState(driver="580.159.04", cuda=(13, 0), gpus=1)


def test_a_library_that_does_not_start_says_why(nvml: FakeNvml) -> None:
    """NVML's own words are kept."""
    nvml.unsupported = {"nvmlInit"}
    assert read_gpu() == Unreadable("nvmlInit Not Supported", is_installed=True)


def test_a_package_that_is_not_there_is_another_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It can be installed; a library of the driver cannot."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert read_gpu() == Unreadable("nvidia-ml-py is not installed", is_installed=False)
