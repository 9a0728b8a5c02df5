"""How fast graphs launch kernels, noted beside whatever is measured.

Graphs of one process replay at one of two speeds ("Two speeds of replays" in
docs/accuracy.md). `settled` brings all phases of a study to the faster one; what is
noted here shows that they were.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

import numpy as np

from layerscope.analyze.bootstrap import bootstrap
from layerscope.graphs.players import has_cuda_bindings
from layerscope.run_header import LaunchCost, LaunchPhase
from layerscope.runner.bench import Bench

Note: TypeAlias = Callable[[LaunchPhase], None]
"""Measures how fast kernels are launched, and adds it to the header of the run."""


@contextmanager
def watched_launches(bench: Bench) -> Iterator[Note]:
    """Yield what notes how fast kernels are launched, while all other graphs are there.

    The graphs that tell are made before any other of the block, and closed after it,
    unless it fails: the device may then be past answering, and its error is what
    counts. Where there are no kernels of our own, nothing is noted.

    Raises:
        MeasurementError: the graphs cannot be made.
    """
    device = bench.workload.feed.device
    if not has_cuda_bindings(device):
        yield lambda _: None
        return
    from layerscope.graphs.calibration import (  # noqa: PLC0415 (needs bindings)
        LaunchChain,
    )

    chain = LaunchChain(bench.player, device)
    costs = bench.writer.header.launch_costs
    yield lambda phase: costs.append(launch_cost(phase, chain.kernel_times_ns()))
    chain.close()


def launch_cost(phase: LaunchPhase, times_ns: Sequence[float]) -> LaunchCost:
    """The median of what a kernel took in several rounds, with its interval."""
    found = bootstrap([np.array(times_ns)])
    return LaunchCost(
        phase=phase, kernel_ns=found.value, low_ns=found.low, high_ns=found.high
    )
