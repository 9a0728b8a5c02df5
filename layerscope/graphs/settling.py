"""Keeps a process in the state in which its graphs launch kernels fast."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from layerscope.graphs.players import has_cuda_bindings
from layerscope.graphs.replay import Player

EARLY_START: Final = (9, 0)
"""Compute capability from which a kernel can start before the one before has ended."""


@contextmanager
def settled(player: Player, device: torch.device) -> Iterator[None]:
    """Let graphs of the process launch kernels at the faster of two speeds in a block.

    To be entered once everything that is timed in it has been made and launched: making
    a graph may slow all others down, until a new one with programmatic edges is
    launched ("Two speeds of replays" in docs/accuracy.md). That is done here, where
    kernels can start early; elsewhere nothing is. The graph is there until the block
    ends, for where no other has such edges, to close it may slow all down again. It is
    not closed where the block fails: the device may then be past answering.

    Args:
        player: of `device`.
        device: must be the current where it is a GPU.

    Raises:
        MeasurementError: the graph cannot be made.
    """
    if not _can_start_early(device):
        yield
        return
    from layerscope.graphs.probe_kernels import EarlyKernels

    replay = player.capture(EarlyKernels(device), 1)
    replay.launch()
    player.wait()
    yield
    player.wait()
    replay.close()


def _can_start_early(device: torch.device) -> bool:
    if not has_cuda_bindings(device):
        return False
    return torch.cuda.get_device_capability(device) >= EARLY_START
