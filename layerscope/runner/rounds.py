"""Rounds: unprofiled replays in one random order, and the samples they give."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import polars as pl

from layerscope.graphs.replay import Timing
from layerscope.nvml import Clocks
from layerscope.runner.bench import Bench
from layerscope.schema import SAMPLES
from layerscope.study import Slot


@dataclass(frozen=True, slots=True)
class Phase:
    """Which samples are made, and until when."""

    name: str
    capture: int
    patience_s: float
    """Monotonic time after which no round beyond the planned ones begins."""

    twins: bool = True
    """Whether edited graphs that do all the work are replayed too."""


@dataclass(frozen=True, slots=True)
class Round:
    """Replays that are on their way, or done."""

    index: int
    slots: Sequence[Slot]
    steps: Sequence[int]
    clocks: Clocks
    timing: Timing


def enqueue(bench: Bench, index: int, slots: Sequence[Slot]) -> Round:
    """Enqueue the replays of `slots`, each between two events."""
    replays = [bench.replay(slot.arm, slot.experiment, slot.passes) for slot in slots]
    timing = bench.player.time(replays)
    steps = [bench.next_step() for _ in slots]
    return Round(index, tuple(slots), steps, bench.clocks.read(), timing)


def samples(bench: Bench, phase: Phase, round_: Round) -> pl.DataFrame:
    """Wait for `round_`; its samples, `schema.SAMPLES`."""
    clocks = msgspec.structs.asdict(round_.clocks)
    durations = round_.timing.durations_ns()
    rows = [
        {
            "phase": phase.name,
            "arm": slot.arm,
            "experiment": slot.experiment,
            "capture": phase.capture,
            "round": round_.index,
            "position": slot.position,
            "passes": slot.passes,
            "step": step,
            "duration_ns": duration_ns,
            "required_bytes": bench.workload.required_bytes(step, slot.passes),
            **clocks,
        }
        for slot, step, duration_ns in zip(
            round_.slots, round_.steps, durations, strict=True
        )
    ]
    return pl.DataFrame(rows, schema=SAMPLES)
