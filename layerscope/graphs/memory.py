"""Device memory: refuse what cannot fit, and say clearly when it ran out."""

import torch

from layerscope.environment import available_memory_bytes
from layerscope.errors import MeasurementError

_ADVICE = "use fewer --passes, --tp N --shard-shaped, or a shorter --context"


def out_of_memory() -> str:
    """The line for a device allocation that failed, with what is left."""
    free, total = torch.cuda.mem_get_info()
    return (
        f"out of GPU memory, {free / 1e9:.1f} of {total / 1e9:.1f} GB free; {_ADVICE}"
    )


def check_memory(device: torch.device, needed_bytes: int) -> None:
    """Refuse a problem that cannot fit, before anything is allocated.

    Raises:
        MeasurementError: with what is needed, what is free, and what to change.
    """
    if device.type == "cpu":
        free_bytes = available_memory_bytes()
    else:
        free_bytes, _ = torch.cuda.mem_get_info(device)
    if needed_bytes > free_bytes:
        msg = (
            f"weights, KV and inputs need {needed_bytes / 1e9:.1f} GB and "
            f"{free_bytes / 1e9:.1f} GB are free; {_ADVICE}"
        )
        raise MeasurementError(msg)
