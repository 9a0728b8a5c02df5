"""What NVML says of the GPU in one reading, or why it says nothing. Only reads."""

from importlib import import_module
from types import ModuleType
from typing import Any

import msgspec

from layerscope.doctor.versions import Version, cuda_version


class GpuState(msgspec.Struct, frozen=True, kw_only=True):
    """Driver and clocks; None where NVML does not tell."""

    driver: str = ""
    cuda: Version | None = None
    """The newest CUDA that the driver runs."""

    gpus: int = 0
    sm_clock_mhz: int | None = None
    max_sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    max_memory_clock_mhz: int | None = None
    event_reasons: int | None = None
    """Bit mask of NVML's ``nvmlClocksEventReason*``: what holds the clocks down."""

    persistence: bool | None = None
    """Whether the driver stays loaded while no process uses the GPU."""


class Unreadable(msgspec.Struct, frozen=True):
    """Why NVML says nothing."""

    reason: str
    is_installed: bool
    """Whether the Python package is there."""


def read_gpu(uuid: str = "") -> GpuState | Unreadable:
    """Ask NVML once.

    Args:
        uuid: of the GPU as torch tells it; without one the clocks are left out.
    """
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return Unreadable("nvidia-ml-py is not installed", is_installed=False)
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return Unreadable(str(error), is_installed=True)
    number = _ask(nvml, "nvmlSystemGetCudaDriverVersion_v2")
    state = GpuState(
        driver=str(_ask(nvml, "nvmlSystemGetDriverVersion") or ""),
        cuda=cuda_version(number or 0),
        gpus=_ask(nvml, "nvmlDeviceGetCount") or 0,
    )
    gpu = _ask(nvml, "nvmlDeviceGetHandleByUUID", f"GPU-{uuid}") if uuid else None
    return state if gpu is None else _with_clocks(state, nvml, gpu)


def _with_clocks(state: GpuState, nvml: ModuleType, gpu: object) -> GpuState:
    sm, memory = nvml.NVML_CLOCK_SM, nvml.NVML_CLOCK_MEM
    persistence = _ask(nvml, "nvmlDeviceGetPersistenceMode", gpu)
    return msgspec.structs.replace(
        state,
        sm_clock_mhz=_ask(nvml, "nvmlDeviceGetClockInfo", gpu, sm),
        max_sm_clock_mhz=_ask(nvml, "nvmlDeviceGetMaxClockInfo", gpu, sm),
        memory_clock_mhz=_ask(nvml, "nvmlDeviceGetClockInfo", gpu, memory),
        max_memory_clock_mhz=_ask(nvml, "nvmlDeviceGetMaxClockInfo", gpu, memory),
        event_reasons=_ask(nvml, "nvmlDeviceGetCurrentClocksEventReasons", gpu),
        persistence=None if persistence is None else bool(persistence),
    )


def _ask(nvml: ModuleType, function: str, *arguments: object) -> Any:  # noqa: ANN401 (untyped bindings)
    """The answer of one call, or None where it is not supported."""
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError:
        return None
