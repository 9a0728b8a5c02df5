"""Brings a process into the state in which its graphs launch kernels fast."""

from typing import Final

import torch

from layerscope.graphs.players import has_cuda_bindings
from layerscope.graphs.replay import Player

EARLY_START: Final = (9, 0)
"""Compute capability from which a kernel can start before the one before has ended."""


def settle(player: Player, device: torch.device) -> None:
    """Let graphs of the process launch kernels at the faster of two speeds.

    To be called once everything that is timed next has been made and launched: making a
    graph may slow all others down, until a new one with programmatic edges is launched
    ("Two speeds of replays" in docs/accuracy.md). That is done here, where kernels can
    start early; elsewhere nothing is. Beside the many small graphs of cold reads it
    does not help, for reasons unknown; so speeds are noted (`runner.launches`).

    Args:
        player: of `device`.
        device: must be the current where it is a GPU.

    Raises:
        MeasurementError: the graph cannot be made.
    """
    if not has_cuda_bindings(device):
        return
    if torch.cuda.get_device_capability(device) < EARLY_START:
        return
    from layerscope.graphs.probe_kernels import EarlyKernels

    replay = player.capture(EarlyKernels(device), 1)
    replay.launch()
    player.wait()
    replay.close()
