"""Chains of our own kernels that show what measuring and editing cost here.

Their kernels follow each other by full edges and share no data, so that nothing but the
cost itself changes from one replay to the next.
"""

from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import Final

import torch

from layerscope.errors import MeasurementError
from layerscope.graphs.edits import Change
from layerscope.graphs.own_kernels import OwnKernel
from layerscope.graphs.replay import Editable, Player, Replay
from layerscope.graphs.settling import settled
from layerscope.regions import Region, layer_pass, region
from layerscope.run_header import DisabledCost

OBSERVED_BLOCKS: Final = (1, 8, 32, 132, 528, 2112)
"""Blocks of the kernels whose cost under a profiler is measured."""

_OBSERVED_KERNELS: Final = 50
_THREADS: Final = 256

_LAUNCHED_KERNELS: Final = 50
_LONGER: Final = 3
"""Passes of the longer of two chains, in whose difference the launch cancels."""

_LAUNCH_ROUNDS: Final = 20

DISABLED_IN_A_ROW: Final = (1, 2, 5, 10, 20, 50)
_CHAIN: Final = 200
_CHAIN_BLOCKS: Final = 8
_MOST_DISABLED: Final = _CHAIN // 2
_MOST_RUNS: Final = 20
_WARM_LAUNCHES: Final = 3

SMALL_SOURCE: Final = r"""
extern "C" __global__ void layerscope_small(float* counts) {
    if (threadIdx.x == 0) counts[blockIdx.x] += 1.0f;
}
"""


class SmallChain:
    """The body of a replay: small kernels one after the other, each on its own data.

    Attributes:
        counts: float32 [kernels, blocks], how often each block of each kernel has run.
    """

    def __init__(self, device: torch.device, blocks: int, kernels: int) -> None:
        """Make the kernels of a pass.

        Args:
            device: where they run.
            blocks: of every kernel, of 256 threads each.
            kernels: of a pass.

        Raises:
            MeasurementError: NVRTC or the driver refuses.
        """
        self.counts = torch.zeros(kernels, blocks, device=device)
        self._kernel = OwnKernel(SMALL_SOURCE, "layerscope_small", device)
        self._blocks = blocks

    def __call__(self, passes: int) -> None:
        """Enqueue the kernels of `passes` passes."""
        for index in range(passes):
            with layer_pass(index), region(Region.OTHER):
                for counts in self.counts:
                    self._kernel.launch(self._blocks, _THREADS, [counts])


class LaunchChain:
    """Small kernels in a row: how fast graphs of this process launch kernels now.

    Its two graphs are made once, for to make one may change what it is to tell
    (docs/accuracy.md, "Two speeds of replays").
    """

    def __init__(self, player: Player, device: torch.device) -> None:
        """Capture it.

        Args:
            player: captures and times, on a GPU.
            device: where it plays.

        Raises:
            MeasurementError: the kernel cannot be made or captured here.
        """
        body = SmallChain(device, 1, _LAUNCHED_KERNELS)
        self._player = player
        self._short = player.capture(body, 1)
        self._long = player.capture(body, _LONGER)

    def kernel_times_ns(self) -> list[float]:
        """What each kernel takes, of several rounds: a slope, without the launch."""
        order = [self._short, self._long] * (_WARM_LAUNCHES + _LAUNCH_ROUNDS)
        times_ns = self._player.time(order).durations_ns()[2 * _WARM_LAUNCHES :]
        kernels = (_LONGER - 1) * _LAUNCHED_KERNELS
        return [
            (long - short) / kernels
            for short, long in zip(times_ns[::2], times_ns[1::2], strict=True)
        ]

    def close(self) -> None:
        """Let go of its graphs, once the device is idle."""
        self._player.wait()
        self._short.close()
        self._long.close()


def observed_chains(device: torch.device) -> dict[int, SmallChain]:
    """The bodies on which a profiler's cost a kernel is measured, by blocks.

    A pass has 50 kernels. What profiled replays take longer than others, divided by
    their kernels, is what the profiler adds to one.
    """
    return {
        blocks: SmallChain(device, blocks, _OBSERVED_KERNELS)
        for blocks in OBSERVED_BLOCKS
    }


def disabled_costs(
    player: Player, device: torch.device, rounds: int = 30
) -> list[DisabledCost]:
    """What disabled nodes in a row cost, by how many there are.

    A chain of 200 kernels of which some are disabled is timed against one without them.

    Args:
        player: captures and times, on a GPU.
        device: where it plays.
        rounds: replays of each; the median of their differences is taken.

    Raises:
        MeasurementError: graphs cannot be edited here.
    """
    with ExitStack() as open_replays:
        pairs = []
        for length in DISABLED_IN_A_ROW:
            pair = _pair(player, device, length)
            for replay in pair:
                open_replays.callback(replay.close)
            pairs.append(pair)
        open_replays.callback(player.wait)  # before any is closed
        differences = _differences(player, device, pairs, rounds)
    return [
        DisabledCost(nodes=length, cost_ns=median(seen) / len(_starts(length)))
        for length, seen in zip(DISABLED_IN_A_ROW, differences, strict=True)
    ]


def _pair(
    player: Player, device: torch.device, length: int
) -> tuple[Replay, Replay, Replay]:
    """A chain with runs of disabled nodes, one without these nodes, and the whole."""
    starts = _starts(length)
    whole = player.capture(SmallChain(device, _CHAIN_BLOCKS, _CHAIN), 1)
    if not isinstance(whole, Editable):
        whole.close()
        msg = "graphs are not edited here, so no cost of disabled nodes can be measured"
        raise MeasurementError(msg)
    disabled = tuple(start + i for start in starts for i in range(length))
    rest = SmallChain(device, _CHAIN_BLOCKS, _CHAIN - len(disabled))
    return whole.variant(Change(disabled=disabled)), player.capture(rest, 1), whole


def _starts(length: int) -> range:
    """First nodes of the runs of `length`, spread over the chain, none at its ends."""
    runs = min(_MOST_RUNS, _MOST_DISABLED // length)
    period = _CHAIN // runs
    return range((period - length) // 2, _CHAIN, period)


def _differences(
    player: Player,
    device: torch.device,
    pairs: Sequence[tuple[Replay, ...]],
    rounds: int,
) -> list[list[int]]:
    """Times of the first replay of every pair less those of the second, by round."""
    order = [replay for disabled, absent, *_ in pairs for replay in (disabled, absent)]
    for replay in order * _WARM_LAUNCHES:
        replay.launch()
    player.wait()
    with settled(player, device):
        times_ns = player.time(order * rounds).durations_ns()
    apart = [a - b for a, b in zip(times_ns[::2], times_ns[1::2], strict=True)]
    return [apart[place :: len(pairs)] for place in range(len(pairs))]
