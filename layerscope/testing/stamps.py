"""Whether what the blocks of a backend's kernels note can be times of one pass."""

from collections.abc import Iterator

import torch
from torch import Tensor

from layerscope.testing.arm import ArmUnderTest

_TIMES = 4


def stamps(arm: ArmUnderTest) -> Iterator[str]:
    """What is wrong with the stamps of the last pass that `arm` ran."""
    found = arm.read_stamps()
    if not found:
        lacks = "its step has no read_stamps" if found is None else "no kernel has any"
        yield f"it says that it has stamps, and {lacks}"
        return
    for role, noted in found.items():
        wrong = _wrong(noted)
        if wrong:
            yield f"stamps of {role} {wrong}"
    again = arm.read_stamps() or {}
    if any(bool(noted.any()) for noted in again.values()):
        yield "read_stamps does not clear what it has read"


def _wrong(noted: Tensor) -> str:
    kind = noted.device.type, noted.dtype, noted.ndim
    if kind != ("cpu", torch.int64, 2) or noted.shape[1] != _TIMES:
        shown = f"{noted.dtype} {list(noted.shape)} on {noted.device}"
        return f"are {shown}, not int64 [blocks, {_TIMES}] on the CPU"
    begun, *others = noted.unbind(1)
    ended = others[-1]
    for times in others:
        is_there = times > 0
        if (is_there & ((times < begun) | (times > ended))).any():
            return "are not within the begin and the end of their block"
    return "" if begun.any() else "say that no block ran"
