"""The device a run is made on: its facts, and every reason not to measure there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch

from layerscope.environment import (
    DeviceFacts,
    available_memory_bytes,
    cpu_name,
)
from layerscope.errors import InputError
from layerscope.nvml import driver_version, foreign_compute_processes, mig_enabled

DEVICES = ("auto", "cpu", "cuda")

_MPS_PIPE: Final = "/tmp/nvidia-mps"  # noqa: S108 (where CUDA looks by default)


def resolve(name: str) -> torch.device:
    """The torch device for ``--device``; ``auto`` takes a GPU where there is one.

    Raises:
        InputError: the name is unknown, or ``cuda`` without a usable GPU.
    """
    if name not in DEVICES:
        msg = f"unknown device {name!r}; use one of {', '.join(DEVICES)}"
        raise InputError(msg)
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        msg = f"--device cuda: {_why_no_gpu()}; use --device cpu"
        raise InputError(msg)
    return torch.device("cuda", torch.cuda.current_device())


def _why_no_gpu() -> str:
    if torch.version.cuda is None and torch.version.hip is None:
        return f"torch {torch.__version__} is built for CPUs only"
    return "torch finds no usable GPU (see nvidia-smi or rocm-smi)"


def facts(device: torch.device) -> DeviceFacts:
    """What the runtime says of `device`."""
    if device.type == "cpu":
        return DeviceFacts(
            type="cpu",
            name=cpu_name(),
            processors=torch.get_num_threads(),
            memory_bytes=available_memory_bytes(),
        )
    properties = torch.cuda.get_device_properties(device)
    hip = torch.version.hip
    if hip:
        architecture, *_ = properties.gcnArchName.split(":")  # then features: "xnack-"
    else:
        architecture = f"sm_{properties.major}{properties.minor}"
    return DeviceFacts(
        type="hip" if hip else "cuda",
        name=properties.name,
        index=device.index or 0,
        uuid=str(getattr(properties, "uuid", "")),
        architecture=architecture,
        processors=properties.multi_processor_count,
        memory_bytes=properties.total_memory,
        l2_bytes=properties.L2_cache_size,
        driver=driver_version(),
        runtime=(hip or torch.version.cuda) or "",
    )


@contextmanager
def spare_core(device: torch.device) -> Iterator[None]:
    """Measure a CPU with one thread fewer than torch would take, for the block.

    Threads of an operator wait for the slowest; where every core has one, anything else
    that runs stops them all. OMP_NUM_THREADS, where it is set, is kept.
    """
    threads = torch.get_num_threads()
    if device.type == "cpu" and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(max(1, threads - 1))
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def refusals(device: torch.device) -> list[str]:
    """Every reason not to measure on `device` now; asked before it is touched.

    A GPU that others compute on gives times that are not the layer's, and an
    experiment that hangs would hang them. Ask before the first allocation.
    """
    if device.type == "cpu":
        return []
    reasons = _mps_reasons() if torch.version.hip is None else []
    index, uuid = device.index or 0, facts(device).uuid
    if mig_enabled(index, uuid):
        reasons.append("MIG is enabled, so the slice's memory system is shared")
    others = foreign_compute_processes(index, uuid, own_context=_has_context(index))
    if others:
        names = ", ".join(str(pid) for pid in others)
        reasons.append(f"other processes compute on this GPU: {names}")
    return reasons


def _mps_reasons() -> list[str]:
    """Why this process would share the GPU by MPS.

    A CUDA process is a client of the daemon whose pipe it finds, also where no variable
    says so (CUDA Multi-Process Service, "Environment Variables").
    """
    pipe = Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or _MPS_PIPE, "control")
    if pipe.exists():
        return [f"the process runs under MPS: its daemon left {pipe}"]
    if os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"):
        return ["the process is set up for MPS by CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"]
    return []


def _has_context(index: int) -> bool:
    """Whether this process computes on the GPU; an initialised torch need not yet."""
    if not torch.cuda.is_initialized():
        return False
    return bool(torch._C._cuda_hasPrimaryContext(index))  # type: ignore[attr-defined]  # noqa: SLF001
