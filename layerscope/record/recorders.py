"""Which recorder watches a device."""

from importlib.util import find_spec
from typing import Final

import torch

from layerscope.errors import InputError
from layerscope.graphs.players import has_cuda_bindings
from layerscope.record.recorder import Recorder
from layerscope.record.torch_profiler import TorchProfilerRecorder

NAMES: Final = ("auto", "cupti", "torch.profiler", "none")


def recorder_for(name: str, device: torch.device) -> Recorder | None:
    """The recorder called `name`; ``auto`` takes CUPTI where it can be used.

    Returns:
        None for ``none``.

    Raises:
        InputError: the name is unknown, or CUPTI was asked for and cannot be had.
    """
    if name not in NAMES:
        msg = f"unknown recorder {name!r}; use one of {', '.join(NAMES)}"
        raise InputError(msg)
    if name == "none":
        return None
    has_cupti = has_cuda_bindings(device) and find_spec("cupti") is not None
    if name == "cupti" and not has_cupti:
        msg = (
            "--recorder cupti needs an NVIDIA GPU and the cuda extra "
            "(pip install 'layerscope[cuda]'); use --recorder torch.profiler"
        )
        raise InputError(msg)
    if has_cupti and name != "torch.profiler":
        from layerscope.record.cupti import CuptiRecorder

        return CuptiRecorder()
    return TorchProfilerRecorder(device)
