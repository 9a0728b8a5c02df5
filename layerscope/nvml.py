"""What NVML says of an NVIDIA GPU; every question has an answer without NVML too.

Only reads. Clocks, power limits and modes are never changed.
"""

import os
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec


class Clocks(msgspec.Struct, frozen=True, kw_only=True):
    """State of the GPU at one moment; None where NVML does not tell."""

    sm_clock_mhz: int | None = None
    memory_clock_mhz: int | None = None
    temperature_c: int | None = None
    power_mw: int | None = None
    throttle_reasons: int | None = None
    """Bit mask of NVML's ``nvmlClocksEventReason*``."""


@cache
def _nvml() -> ModuleType | None:
    """The initialised library, or None without the package, a driver or a GPU."""
    try:
        nvml = import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
    except nvml.NVMLError:
        return None
    return nvml


def _ask(function: str, *arguments: Any) -> Any:  # noqa: ANN401 (untyped bindings)
    """The answer of one NVML call, or None where it is not supported."""
    nvml = _nvml()
    if nvml is None:
        return None
    try:
        return getattr(nvml, function)(*arguments)
    except nvml.NVMLError:
        return None


def _visible(index: int) -> str:
    """What CUDA_VISIBLE_DEVICES calls torch's device `index`; empty if it does not."""
    entries = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    return entries[index].strip() if index < len(entries) else ""


def _handle(index: int, uuid: str = "") -> Any:  # noqa: ANN401 (untyped bindings)
    """NVML's handle of torch's device `index`.

    By `uuid` where torch tells it, for NVML and CUDA number mixed GPUs differently;
    else through CUDA_VISIBLE_DEVICES.
    """
    known = _ask("nvmlDeviceGetHandleByUUID", f"GPU-{uuid}") if uuid else None
    if known is not None:
        return known
    entry = _visible(index)
    if entry.startswith(("GPU-", "MIG-")):
        return _ask("nvmlDeviceGetHandleByUUID", entry)
    return _ask("nvmlDeviceGetHandleByIndex", int(entry) if entry.isdigit() else index)


def driver_version() -> str:
    """The display driver's version, or an empty string."""
    return str(_ask("nvmlSystemGetDriverVersion") or "")


def mig_enabled(index: int, uuid: str = "") -> bool:
    """Whether the GPU is split by MIG."""
    if _visible(index).startswith("MIG-"):
        return True
    handle = _handle(index, uuid)
    mode = _ask("nvmlDeviceGetMigMode", handle) if handle else None
    return bool(mode and mode[0])


def foreign_compute_processes(
    index: int, uuid: str = "", *, own_context: bool
) -> list[int]:
    """Process ids of others that hold a compute context on the GPU.

    Args:
        index: torch's device index.
        uuid: of the GPU, where torch tells it.
        own_context: whether this process holds one already. In a container NVML may
            list it under a number of the host, which no process here has.
    """
    handle = _handle(index, uuid)
    processes = _ask("nvmlDeviceGetComputeRunningProcesses", handle) if handle else None
    others = [p.pid for p in processes or [] if p.pid != os.getpid()]
    unknown = [pid for pid in others if not Path(f"/proc/{pid}").exists()]
    if own_context and len(others) == len(processes or []) and unknown:
        others.remove(unknown[0])
    return others


class ClockReader:
    """Reads the clocks of one GPU, quickly enough to ask once a round."""

    def __init__(self, index: int | None, uuid: str = "") -> None:
        """Open GPU `index`; None (no GPU) answers every read with an empty one."""
        self._device = None if index is None else _handle(index, uuid)

    def read(self) -> Clocks:
        """Clocks, temperature, power and throttle reasons now."""
        if self._device is None:
            return Clocks()
        nvml = _nvml()
        assert nvml is not None  # noqa: S101 (a handle exists only with the library)
        device = self._device
        return Clocks(
            sm_clock_mhz=_ask("nvmlDeviceGetClockInfo", device, nvml.NVML_CLOCK_SM),
            memory_clock_mhz=_ask(
                "nvmlDeviceGetClockInfo", device, nvml.NVML_CLOCK_MEM
            ),
            temperature_c=_ask(
                "nvmlDeviceGetTemperature", device, nvml.NVML_TEMPERATURE_GPU
            ),
            power_mw=_ask("nvmlDeviceGetPowerUsage", device),
            throttle_reasons=_ask("nvmlDeviceGetCurrentClocksEventReasons", device),
        )
