"""Which player and which head of a replay a device gets."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import torch

from layerscope.graphs.eager import EagerPlayer
from layerscope.graphs.replay import Player
from layerscope.graphs.torch_graph import TorchGraphPlayer
from layerscope.layers.feed import Feed, advance


def has_cuda_bindings(device: torch.device) -> bool:
    """Whether graphs on `device` can be driven and read node by node."""
    return (
        device.type == "cuda"
        and torch.version.cuda is not None
        and find_spec("cuda") is not None
        and find_spec("cuda.bindings") is not None
    )


def player_for(device: torch.device) -> Player:
    """The best player for `device`."""
    if device.type == "cpu":
        return EagerPlayer()
    if has_cuda_bindings(device):
        from layerscope.graphs.cuda import GraphPlayer

        return GraphPlayer()
    return TorchGraphPlayer()


def head_for(feed: Feed) -> Callable[[], None]:
    """What a replay begins with: the next step of `feed` and its inputs."""
    if has_cuda_bindings(feed.device):
        from layerscope.graphs.probe_kernels import AdvanceKernel

        return AdvanceKernel(feed)
    return partial(advance, feed)
