"""Anchors: unprofiled replays of all arms and lengths, interleaved in random order."""

import time
from collections import deque
from typing import Final

import numpy as np
import polars as pl

from layerscope.analyze.statistics import pass_times
from layerscope.experiment import CAPTURED
from layerscope.runner.bench import Bench
from layerscope.runner.rounds import Phase, Round, enqueue, samples
from layerscope.schema import SAMPLES, empty
from layerscope.study import FEWEST_ROUNDS, order

_CHECK_EVERY: Final = 8
"""Rounds between two looks at whether the interval is small enough."""

_OF_TARGET: Final = 0.5
"""Part of the target that one capture may use: medians over few captures are wider."""

_CHECKPOINT_S: Final = 5.0
_Z_95: Final = 1.96


def measure(bench: Bench, phase: Phase) -> None:
    """Run rounds until the plan is met and the paired interval is small, or time is up.

    The study's own deadline ends even planned rounds, but for the fewest that tell.
    One round is always in flight while the one before is read, so that the device never
    idles between rounds. Samples go to the run as they come; when something stops the
    rounds, those that were enqueued whole are still read.
    """
    graphs = bench.graphs(twins=phase.twins)
    bench.restart(hold=len(graphs) * len(bench.study.lengths))
    rounds = order(bench.study, graphs, str(phase.capture))
    pending: deque[Round] = deque()
    frames: list[pl.DataFrame] = []
    saved_s = time.monotonic()
    try:
        for index, slots in enumerate(rounds):
            if index >= bench.study.rounds:
                if _is_enough(bench, phase, frames, index):
                    break
            elif bench.must_stop(index, FEWEST_ROUNDS):
                break
            pending.append(enqueue(bench, index, slots))
            if len(pending) > 1:
                frames.append(_collect(bench, phase, pending))
            if time.monotonic() - saved_s > _CHECKPOINT_S:
                bench.writer.checkpoint()
                saved_s = time.monotonic()
    finally:
        while pending:
            _collect(bench, phase, pending)
    bench.writer.checkpoint()


def _collect(bench: Bench, phase: Phase, pending: deque[Round]) -> pl.DataFrame:
    """Wait for the oldest round and add its samples to the run."""
    frame = samples(bench, phase, pending[0])  # where one waits, and may be stopped
    pending.popleft()
    bench.writer.add_samples(frame)
    bench.progress.advance()
    return frame


def _is_enough(
    bench: Bench, phase: Phase, frames: list[pl.DataFrame], index: int
) -> bool:
    if time.monotonic() >= phase.patience_s:
        return True
    if index % _CHECK_EVERY:
        return False
    made = pl.concat([empty(SAMPLES), *frames])
    times = pass_times(made.filter(experiment=CAPTURED))
    base = bench.study.arms[0].name
    alone = {base, *(arm.name for arm in bench.study.stamp_arms)}
    widths = [_half_width(times, base, arm) for arm in bench.arms if arm not in alone]
    return max(widths, default=0.0) < bench.study.target_interval * _OF_TARGET


def _half_width(times: pl.DataFrame, base: str, other: str) -> float:
    """Half the interval of paired differences, relative to the base; a quick look.

    Reports use the bootstrap; this normal approximation only decides when to stop.
    """
    wide = times.pivot("arm", index="round", values="pass_ns").drop_nulls()
    difference = (wide[other] - wide[base]).to_numpy()
    spread_ns = float(np.std(difference, ddof=1)) / float(np.sqrt(len(difference)))
    return _Z_95 * spread_ns / float(np.median(wide[base].to_numpy()))
