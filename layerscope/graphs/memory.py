"""Device memory: refuse what cannot fit, and say clearly when it ran out."""

import resource

import torch

from layerscope.environment import available_memory_bytes
from layerscope.errors import MeasurementError

_CPU_FAILURE = "can't allocate memory"
_ADVICE = (
    "use fewer --passes or --requests, --tp N --shard-shaped, or a shorter --context"
)


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an allocation failed; torch has no class of its own for that on CPUs."""
    return isinstance(error, torch.OutOfMemoryError) or _CPU_FAILURE in str(error)


def peak_memory_bytes() -> int:
    """Largest resident set that this process has had on the host."""
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # Linux's unit
    return kibibytes * 1024


def out_of_memory(error: RuntimeError) -> str:
    """The line for an allocation that failed with `error`, with what is left."""
    if not isinstance(error, torch.OutOfMemoryError):
        return f"out of memory, {available_memory_bytes() / 1e9:.1f} GB free; {_ADVICE}"
    free, total = torch.cuda.mem_get_info()
    return (
        f"out of GPU memory, {free / 1e9:.1f} of {total / 1e9:.1f} GB free; {_ADVICE}"
    )


def free_bytes(device: torch.device) -> int:
    """Memory that can be allocated on `device` now."""
    if device.type == "cpu":
        return available_memory_bytes()
    available, _ = torch.cuda.mem_get_info(device)
    return available


def check_memory(device: torch.device, needed_bytes: int) -> None:
    """Refuse a problem that cannot fit, before anything is allocated.

    Raises:
        MeasurementError: with what is needed, what is free, and what to change.
    """
    available_bytes = free_bytes(device)
    if needed_bytes > available_bytes:
        msg = (
            f"weights, KV and inputs need {needed_bytes / 1e9:.1f} GB and "
            f"{available_bytes / 1e9:.1f} GB are free; {_ADVICE}"
        )
        raise MeasurementError(msg)
