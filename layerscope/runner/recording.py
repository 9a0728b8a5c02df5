"""Profiled blocks: the longest replay of every arm, interleaved, under a recorder."""

import random
from collections import Counter
from collections.abc import Iterable
from typing import Final

from layerscope.errors import MeasurementError
from layerscope.experiment import CAPTURED, SERIAL, Experiment
from layerscope.record.recorder import (
    Launch,
    Recorded,
    Recorder,
    fault,
    kernels,
    refuse_unmapped,
)
from layerscope.run_header import Drop
from layerscope.runner.bench import Bench
from layerscope.study import Graphs

_ROUNDS_A_BLOCK: Final = 8
"""Rounds between two flushes of the profiler: bounds its buffers."""

_EDGE_PASSES: Final = 2
"""The first and the last pass of a replay are not used."""


def record(bench: Bench, recorder: Recorder, capture: int) -> None:
    """Record one capture's part of `Study.samples` usable passes of every arm.

    Replays that cannot be trusted are dropped and counted, not made again. Once the
    study's time budget has ended, one block of rounds is all.

    Args:
        bench: with replays captured and warm.
        recorder: attached for the duration of this call only.
        capture: index of the capture whose replays are recorded; with the study's
            seed it fixes the order of the arms.

    Raises:
        MeasurementError: records cannot be mapped, or no replay of an arm is whole.
    """
    usable = max(1, bench.study.passes - _EDGE_PASSES)
    rounds = -(-bench.study.samples // (usable * bench.study.captures))
    seed = f"{bench.study.seed}:recording:{capture}"
    draw = random.Random(seed)  # noqa: S311 (not a secret)
    header = bench.writer.header
    before = Counter({(drop.arm, drop.reason): drop.replays for drop in header.drops})
    drops: Counter[tuple[str, str]] = Counter()
    recorded = 0
    bench.progress.phase(f"recording with {recorder.name}", rounds)
    bench.restart(hold=len(recorded_graphs(bench)))
    with recorder.attached():
        for first in range(0, rounds, _ROUNDS_A_BLOCK):
            if bench.must_stop(recorded, 1):
                break
            block = range(first, min(first + _ROUNDS_A_BLOCK, rounds))
            recordings = recorder.record(_launches(bench, capture, block, draw))
            drops.update(_keep(bench, recordings))
            header.drops = [
                Drop(arm=arm, replays=count, reason=reason)
                for (arm, reason), count in sorted((before + drops).items())
            ]
            bench.progress.advance(len(block))
            recorded += len(block)
    bench.step = int(bench.workload.feed.step)  # recorders launch on their own
    _refuse_empty(bench, drops, recorded)


def _launches(
    bench: Bench, capture: int, rounds: Iterable[int], draw: random.Random
) -> list[Launch]:
    launches = []
    graphs = list(recorded_graphs(bench))
    for index in rounds:
        draw.shuffle(graphs)
        launches += [
            Launch(bench.longest(*graph), graph[0], capture, index, graph[1])
            for graph in graphs
        ]
    return launches


def recorded_graphs(bench: Bench) -> Graphs:
    """The graphs that are recorded: as captured, and some edited ones."""
    edited = tuple(
        (arm, experiment.name)
        for arm, experiments in bench.experiments.items()
        for experiment in experiments
        if is_recorded(bench, arm, experiment)
    )
    return (*bench.graphs(twins=False), *edited)


def is_recorded(bench: Bench, arm: str, experiment: Experiment) -> bool:
    """Whether an edited graph is recorded: the serial twin of an arm is.

    Not of one that is there for its switches only: anchors are enough.
    """
    is_compared = any(one.name == arm for one in bench.study.arms)
    return experiment == SERIAL and is_compared


def _label(arm: str, experiment: str) -> str:
    """What drops and errors call a graph."""
    return arm if experiment == CAPTURED else f"{arm}, {experiment}"


def _keep(bench: Bench, recordings: list[Recorded]) -> list[tuple[str, str]]:
    """Add the whole replays to the run; (arm, reason) of each that is not."""
    refuse_unmapped(recordings)
    faults = [(recorded, fault(recorded)) for recorded in recordings]
    good = [recorded for recorded, reason in faults if reason is None]
    bench.writer.add_kernels(kernels(good))
    return [
        (_label(recorded.launch.arm, recorded.launch.experiment), reason)
        for recorded, reason in faults
        if reason is not None
    ]


def _refuse_empty(bench: Bench, drops: Counter[tuple[str, str]], rounds: int) -> None:
    for graph in recorded_graphs(bench):
        label = _label(*graph)
        reasons = {reason: n for (name, reason), n in drops.items() if name == label}
        if sum(reasons.values()) == rounds:
            worst = max(reasons, key=lambda reason: reasons[reason])
            msg = f"{label}: none of {rounds} recorded replays is whole ({worst})"
            raise MeasurementError(msg)
