"""How long kernels must spin so that both arms of a case take the same time."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from statistics import median
from typing import Final

import torch

from layerscope.graphs.players import head_for, player_for
from layerscope.graphs.replay import Player, Replay
from layerscope.graphs.settling import settled
from layerscope.runner.bench import WARM_LAUNCHES
from layerscope.runner.body import body_of
from layerscope.selftest.cases import BASE, OTHER, Case, Chain
from layerscope.selftest.kernels import LONGEST_SPIN_NS
from layerscope.selftest.workload import PlantedWorkload

_LENGTHS: Final = (8, 24)
_ROUNDS: Final = 24

_TRIALS: Final = 2
"""The first finds the time, the second what the steps of the clock add to it."""


def balanced(case: Case, device: torch.device) -> Case:
    """`case` with an other arm whose spinning kernels make up what it is faster by.

    Raises:
        MeasurementError: an arm cannot be captured.
    """
    for _ in range(_TRIALS):
        times_ns = _pass_times(case, device)
        spin_ns = missing_ns(case.other, times_ns[BASE] - times_ns[OTHER])
        case = replace(case, other=spinning(case.other, spin_ns))
    return case


def missing_ns(arm: Chain, faster_ns: float) -> int:
    """How long each spinning kernel of `arm` must spin, if it is faster by so much."""
    spins = [launch.spin_ns for launch in arm if launch.spin_ns]
    wanted_ns = round(spins[0] + faster_ns / len(spins))
    return min(max(wanted_ns, 1), LONGEST_SPIN_NS)


def spinning(arm: Chain, spin_ns: int) -> Chain:
    """`arm`, whose spinning kernels do so for `spin_ns` each."""
    return tuple(
        replace(launch, spin_ns=spin_ns) if launch.spin_ns else launch for launch in arm
    )


def _pass_times(case: Case, device: torch.device) -> Mapping[str, float]:
    """The time of a pass of each arm, in ns: a slope of medians."""
    workload = PlantedWorkload(case.arms, case.reads, max(_LENGTHS), device)
    player, head = player_for(device), head_for(workload.feed)
    cells = list(product(case.arms, _LENGTHS))
    replays = [
        player.capture(body_of(workload, head, arm), length) for arm, length in cells
    ]
    rounds = _rounds(player, device, replays)
    for replay in replays:
        replay.close()
    middle = {
        cell: median(durations)
        for cell, durations in zip(cells, zip(*rounds, strict=True), strict=True)
    }
    short, long = _LENGTHS
    return {
        arm: (middle[arm, long] - middle[arm, short]) / (long - short)
        for arm in case.arms
    }


def _rounds(
    player: Player, device: torch.device, replays: list[Replay]
) -> list[list[int]]:
    player.wait()
    for replay in replays * WARM_LAUNCHES:
        replay.launch()
    player.wait()
    with settled(player, device):  # as the study that follows
        # The first replay of a round begins on an idle device, and does not count.
        return [
            player.time([replays[0], *replays]).durations_ns()[1:]
            for _ in range(_ROUNDS)
        ]
