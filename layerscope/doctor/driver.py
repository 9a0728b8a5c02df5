"""The NVIDIA driver: NVML, the clocks it tells, and which CUDA fits it."""

from importlib import import_module
from typing import Final

import polars as pl

from layerscope.analyze.clocks import throttle_reasons
from layerscope.doctor.gpu_state import GpuState, Unreadable
from layerscope.doctor.versions import (
    Version,
    cuda_version,
    installed,
    version_of,
    written,
)
from layerscope.report.diagnosis import Finding, State
from layerscope.units import NOTHING, format_count

TOPICS: Final = ("driver", "NVML", "clocks")


def supported_cuda(state: GpuState | Unreadable) -> Version | None:
    """The newest CUDA that programs can use here; None where nobody tells.

    The CUDA runtime is asked first: a compatibility package may offer a newer CUDA
    than the driver that NVML sees.
    """
    try:
        runtime = import_module("cuda.bindings.runtime")
    except ImportError:
        number = 0
    else:
        _, number = runtime.cudaDriverGetVersion()
    told = cuda_version(number or 0)
    return told if told or isinstance(state, Unreadable) else state.cuda


def driver(
    state: GpuState | Unreadable, supports: Version | None, runtime: str
) -> Finding:
    """Whether the driver runs what torch was built for.

    Args:
        state: what NVML tells.
        supports: the newest CUDA of the driver.
        runtime: the CUDA version of torch, such as ``13.0``.
    """
    name = state.driver if isinstance(state, GpuState) else "version unknown"
    found = f"{name}, for CUDA up to {written(supports)}; torch uses CUDA {runtime}"
    wanted = version_of(runtime)
    if supports is None or wanted is None or wanted <= supports:
        return Finding("driver", State.OK, found)
    fix = (
        f"install a driver for CUDA {runtime}, or torch for CUDA {written(supports)} "
        "(see pytorch.org/get-started)"
    )
    if wanted[0] > supports[0]:
        return Finding(
            "driver",
            State.MISSING,
            found,
            "the driver is too old for torch to use the GPU",
            fix,
        )
    return Finding(
        "driver",
        State.LIMITED,
        found,
        "compiled kernels run, but the driver refuses PTX of a newer CUDA",
        fix,
    )


def nvml(state: GpuState | Unreadable) -> Finding:
    """Whether clocks and other processes can be seen at all."""
    version = installed("nvidia-ml-py")
    if isinstance(state, GpuState):
        found = f"nvidia-ml-py {version}, GPUs: {state.gpus}"
        return Finding("NVML", State.OK, found)
    meaning = "clocks are not recorded, and nothing tells whether others use the GPU"
    if state.is_installed:
        found = f"nvidia-ml-py {version}: {state.reason}"
        fix = "let the process see the driver's libnvidia-ml.so.1 (nvidia-smi needs it)"
    else:
        found, fix = state.reason, "pip install nvidia-ml-py"
    return Finding("NVML", State.MISSING, found, meaning, fix)


def clocks(state: GpuState | Unreadable) -> Finding:
    """Clocks now and at most, and what holds them down; never changed from here.

    NVML tells the reasons that hold clocks down, but has no call that tells a lock set
    by ``nvidia-smi -lgc``.
    """
    if isinstance(state, Unreadable) or state.sm_clock_mhz is None:
        return Finding(
            "clocks",
            State.MISSING,
            "not told",
            "runs say nothing of clocks, so a change of clock looks like a difference",
            "mend NVML",
        )
    column = pl.Series("throttle_reasons", [state.event_reasons], pl.Int64)
    reasons = throttle_reasons(column.to_frame())
    parts = [
        f"SM {_clock(state.sm_clock_mhz, state.max_sm_clock_mhz)}",
        f"memory {_clock(state.memory_clock_mhz, state.max_memory_clock_mhz)}",
    ]
    if state.event_reasons is not None:
        parts.append(f"held down by: {', '.join(reasons) or 'nothing'}")
    if state.persistence is not None:
        parts.append(f"persistence mode {'on' if state.persistence else 'off'}")
    found = ", ".join(parts)
    if not reasons:
        return Finding("clocks", State.OK, found)
    return Finding(
        "clocks",
        State.LIMITED,
        found,
        "times are those of a slowed GPU; where clocks of two arms differ, the cause "
        "of a difference is unknown",
        "nvidia-smi -q -d PERFORMANCE,CLOCK,TEMPERATURE,POWER",
    )


def _clock(now_mhz: int | None, most_mhz: int | None) -> str:
    now, most = (
        NOTHING if value is None else format_count(value)
        for value in (now_mhz, most_mhz)
    )
    return f"{now} of {most} MHz"
