"""Whether the self-test can be run here."""

from importlib.util import find_spec
from typing import Final

import torch

from layerscope.errors import MeasurementError
from layerscope.graphs import device as devices
from layerscope.graphs.players import has_cuda_bindings

_CAPABILITY: Final = (9, 0)
"""The first with programmatic launches (CUDA C++ Programming Guide)."""


def usable_device() -> torch.device:
    """The GPU on which the self-test runs: the current one.

    Raises:
        MeasurementError: there is none, or it must not be measured on now; says why.
    """
    why = _why_none()
    if why:
        msg = f"selftest runs CUDA kernels of its own and needs an NVIDIA GPU: {why}"
        raise MeasurementError(msg)
    device = devices.resolve("cuda")
    reasons = devices.refusals(device)
    if torch.cuda.get_device_capability(device) < _CAPABILITY:
        name = torch.cuda.get_device_name(device)
        reasons.append(f"{name} has no programmatic launches (before sm_90)")
    if not has_cuda_bindings(device) or find_spec("cupti") is None:
        reasons.append("selftest needs the cuda extra: pip install 'layerscope[cuda]'")
    if reasons:
        raise MeasurementError("; ".join(reasons))
    return device


def _why_none() -> str:
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is not built for CUDA"
    return "" if torch.cuda.is_available() else "torch finds none here"
