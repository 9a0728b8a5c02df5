"""Knock-outs: what a pass takes without the nodes of a region."""

import random
import time
from typing import Final

from layerscope.analyze.knockouts import KNOCKOUT
from layerscope.experiment import CAPTURED, Experiment
from layerscope.runner.bench import Bench
from layerscope.runner.outputs import kept, why_other
from layerscope.runner.rounds import Phase, enqueue, samples
from layerscope.runner.trials import blaming, discard
from layerscope.study import Slot

CAPTURES: Final = 3
"""Captures in which they are made: the fewest that show their spread."""

_ROUNDS: Final = 6
"""Rounds of each."""


def knock_out(bench: Bench, capture: int) -> None:
    """Time every arm without each region that may be left out, and with all of them.

    In a round all replays are of one arm and one step. The first, which is not timed,
    is of the captured graph at its full length: the results of a region that is left
    out are then those of that step. After the rounds, a last one shows whether they
    are; if not, the experiment is discarded.
    """
    began_s = time.monotonic()
    for arm, experiments in list(bench.experiments.items()):
        without = tuple(one for one in experiments if one.without)
        if without:
            with blaming(arm, without):
                _rounds(bench, arm, without, Phase(KNOCKOUT, capture, began_s))
                _check(bench, arm, without)
            bench.writer.checkpoint()


def _rounds(
    bench: Bench, arm: str, without: tuple[Experiment, ...], phase: Phase
) -> None:
    names = [CAPTURED, *(experiment.name for experiment in without)]
    wholes = {_whole(experiment) for experiment in without} - {CAPTURED}
    names += sorted(name for name in wholes if _is_made(bench, arm, name))
    cells = [(name, length) for name in names for length in bench.study.lengths]
    seed = f"{bench.study.seed}:knockout:{arm}:{phase.capture}"
    draw = random.Random(seed)  # noqa: S311 (not a secret)
    bench.restart(hold=1 + len(cells))
    for index in range(_ROUNDS):
        draw.shuffle(cells)
        slots = [Slot(place, arm, *cell) for place, cell in enumerate(cells)]
        bench.longest(arm).launch()
        bench.next_step()
        made = samples(bench, phase, enqueue(bench, index, slots))
        bench.writer.add_samples(made)


def _is_made(bench: Bench, arm: str, name: str) -> bool:
    """Whether there are edited graphs of that name: a twin may have been discarded."""
    return (arm, name, bench.study.passes) in bench.variants


def _whole(experiment: Experiment) -> str:
    """The name of the graph that `experiment` leaves a region out of."""
    return Experiment(serial=experiment.serial).name


def _check(bench: Bench, arm: str, without: tuple[Experiment, ...]) -> None:
    passes = bench.study.passes
    bench.restart(hold=1 + len(without))
    bench.player.wait()
    bench.longest(arm).launch()
    bench.next_step()
    bench.player.wait()
    before = kept(bench.workload.outputs(arm, passes))
    for experiment in without:
        bench.longest(arm, experiment.name).launch()
        bench.next_step()
        bench.player.wait()
        reason = why_other(before, bench.workload.outputs(arm, passes))
        if reason:
            discard(bench, arm, experiment, reason)
