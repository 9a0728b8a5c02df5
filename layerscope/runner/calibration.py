"""What measuring itself costs here: to be subtracted, and printed."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from layerscope.analyze.bootstrap import bootstrap
from layerscope.graphs.players import has_cuda_bindings
from layerscope.graphs.replay import Player, Replay
from layerscope.graphs.settling import settled
from layerscope.record.recorder import Launch, Recorded, Recorder, fault
from layerscope.run_header import KernelCost
from layerscope.runner.bench import WARM_LAUNCHES, Bench

_SHORT, _LONG = 1, 3
"""Passes of two replays, in whose difference the cost of a launch cancels."""

_ROUNDS: Final = 20

Chains = Mapping[int, tuple[Replay, Replay]]
"""By blocks of its kernels: a short and a long replay of a chain."""


def calibrate_experiments(bench: Bench) -> None:
    """Measure what disabled nodes cost, if any region is left out of any arm."""
    experiments = [one for arm in bench.experiments.values() for one in arm]
    if any(one.without for one in experiments):
        from layerscope.graphs.calibration import (  # noqa: PLC0415 (needs bindings)
            disabled_costs,
        )

        device = bench.workload.feed.device
        bench.writer.header.disabled_costs = disabled_costs(bench.player, device)


def calibrate_recorder(bench: Bench, recorder: Recorder) -> None:
    """Measure what the recorder adds to kernels of a serial chain, by their blocks."""
    device = bench.workload.feed.device
    if not has_cuda_bindings(device):
        return
    from layerscope.graphs.calibration import (  # noqa: PLC0415 (needs bindings)
        observed_chains,
    )

    bodies = observed_chains(device)
    replays: list[Replay] = []
    try:
        chains = {}
        for blocks, body in bodies.items():
            pair = [bench.player.capture(body, length) for length in (_SHORT, _LONG)]
            replays += pair
            chains[blocks] = (pair[0], pair[1])
        for replay in replays * WARM_LAUNCHES:
            replay.launch()
        bench.player.wait()
        with settled(bench.player, device):
            costs = kernel_costs(bench.player, recorder, chains)
        bench.writer.header.observer_costs = costs
    finally:
        bench.player.wait()
        for replay in replays:
            replay.close()


def kernel_costs(
    player: Player, recorder: Recorder, chains: Chains
) -> list[KernelCost]:
    """What `recorder` adds to a kernel of each chain, by its blocks; they are warm.

    A kernel's time is how much longer the long replay takes, over the kernels that it
    has more: between events without the recorder, and from the first start to the last
    end with it.
    """
    order = [replay for pair in chains.values() for replay in pair]
    plain_ns = player.time(order * _ROUNDS).durations_ns()
    launches = [
        Launch(replay, "calibration", 0, index)
        for index in range(_ROUNDS)
        for replay in order
    ]
    with recorder.attached():
        spans_ns = [_span_ns(recorded) for recorded in recorder.record(launches)]
    costs = []
    for place, (blocks, (short, long)) in enumerate(chains.items()):
        kernels = len(long.nodes) - len(short.nodes)
        plain = _growth(plain_ns, place, len(chains))
        watched = _growth(spans_ns, place, len(chains))
        added = [
            (seen - unseen) / kernels
            for seen, unseen in zip(watched, plain, strict=True)
            if seen is not None and unseen is not None
        ]
        if added:
            costs.append(_cost(blocks, added))
    return costs


def _span_ns(recorded: Recorded) -> int | None:
    """First start to last end of a replay; None where its records are not whole."""
    if fault(recorded) is not None:
        return None
    starts = [event.start_ns for event in recorded.events]
    ends = [event.end_ns for event in recorded.events]
    return max(ends) - min(starts)


def _growth(
    times_ns: Sequence[int | None], place: int, chains: int
) -> list[int | None]:
    """By round: how much longer the long replay of a chain took than its short one."""
    short = times_ns[2 * place :: 2 * chains]
    long = times_ns[2 * place + 1 :: 2 * chains]
    return [
        None if low is None or high is None else high - low
        for low, high in zip(short, long, strict=True)
    ]


def _cost(blocks: int, added_ns: list[float]) -> KernelCost:
    found = bootstrap([np.array(added_ns)])
    return KernelCost(
        blocks=blocks, added_ns=found.value, low_ns=found.low, high_ns=found.high
    )
