"""Which experiments can be made on which arm, found out before any is timed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import Final

import polars as pl

from layerscope.errors import (
    BackendError,
    DeviceLostError,
    MeasurementError,
    describe,
)
from layerscope.experiment import CAPTURED, Experiment
from layerscope.graphs.edits import Change
from layerscope.graphs.replay import Editable, Replay
from layerscope.run_header import Trial
from layerscope.runner.bench import Bench
from layerscope.runner.editing import planned
from layerscope.runner.first_runs import FirstRun, Order, first_runs
from layerscope.runner.outputs import kept, why_other
from layerscope.runner.waits import (
    GAVE_UP,
    GAVE_UP_AS_CAPTURED,
    has_given_up,
    refuse_given_up,
)
from layerscope.runner.workload import Recipe
from layerscope.schema import EDGES

_NO_RECIPE: Final = (
    "a graph that may hang runs first in a process of its own, and code that was given "
    "in Python cannot be made again there"
)


@dataclass(frozen=True, slots=True)
class _Asked:
    arm: str
    experiment: Experiment
    change: Change

    @property
    def run(self) -> FirstRun:
        return FirstRun(arm=self.arm, experiment=self.experiment)


def try_waiting_arms(bench: Bench) -> None:
    """Let arms whose kernels wait for others run elsewhere, before any runs here.

    Raises:
        MeasurementError: one did not end there, or cannot be made there, and somebody
            named it.
    """
    arms = (arm.name for arm in bench.study.built_arms)
    waiting = [arm for arm in arms if bench.workload.allowed(arm).waits]
    runs = [FirstRun(arm=arm, experiment=Experiment()) for arm in waiting]
    if not runs:
        return
    reasons = dict.fromkeys(runs, _NO_RECIPE)
    if bench.recipe is not None:
        bench.progress.phase("running kernels that wait elsewhere first", len(runs))
        passes, device = min(bench.study.lengths), str(bench.workload.feed.device)
        reasons = first_runs(bench.recipe, runs, passes, device)
    for run, reason in reasons.items():
        if reason and not bench.leave_out(run.arm, MeasurementError(reason)):
            msg = f"{run.arm}: {reason}"
            raise MeasurementError(msg)


def try_ahead(bench: Bench) -> None:
    """Let the process that is ready try all that may be asked, while captures are made.

    Which graphs can be edited, and which already are what they would be made, is known
    only once they are captured; the process finds that out by itself.
    """
    if bench.ahead is None or not isinstance(bench.recipe, Recipe):
        return
    runs = [FirstRun(arm=arm, experiment=one) for arm, one in _all_asked(bench)]
    bench.ahead.send(
        Order(
            recipe=bench.recipe,
            runs=runs,
            passes=min(bench.study.lengths),
            device=str(bench.workload.feed.device),
        )
    )


def _all_asked(bench: Bench) -> Iterator[tuple[str, Experiment]]:
    """What the study asks of every arm."""
    for arm in bench.study.built_arms:
        for experiment in bench.study.asked(arm.name):
            yield arm.name, experiment


def try_experiments(bench: Bench) -> None:
    """Try what the study asks of every arm, and note in the header what becomes of it.

    Those that may be measured are then made of every capture. The graph of an arm must
    allow the edit, which must then run once in a process of its own, and once here with
    the results of the captured graph.

    Raises:
        BackendError: kernels of an arm gave up waiting in its captured graph.
        DeviceLostError: an edited graph failed on the device.
    """
    _note_edges(bench)
    asked: list[_Asked] = []
    trials: list[Trial] = []
    for arm, experiment in _all_asked(bench):
        if same := _already(trials, arm, experiment):
            trials.append(same)
            continue
        change = planned(bench.longest(arm), experiment, bench.workload.allowed(arm))
        if isinstance(change, list):
            trials.append(_refused(arm, experiment, "; ".join(change)))
        elif change.is_empty:
            trials.append(Trial(arm=arm, experiment=experiment, outcome="same"))
        else:
            asked.append(_Asked(arm, experiment, change))
    if asked:
        bench.progress.phase("running edited graphs elsewhere first", len(asked))
        trials += _tried(bench, asked)
    if bench.ahead is not None:
        bench.ahead.close()  # nothing may run beside what is timed
    bench.writer.header.trials = trials


def _note_edges(bench: Bench) -> None:
    """Note the edges of every graph, and in the header which nodes may start early."""
    rows = []
    for arm in bench.arms:
        replay = bench.longest(arm)
        if isinstance(replay, Editable):
            rows += [(arm, CAPTURED, *astuple(link)) for link in replay.links]
            early = {link.target for link in replay.links if link.programmatic}
            if early:
                bench.writer.header.programmatic[arm] = sorted(early)
    bench.writer.set_edges(pl.DataFrame(rows, schema=EDGES, orient="row"))


def _already(trials: list[Trial], arm: str, experiment: Experiment) -> Trial | None:
    """What stands for a region left out of a twin that is the captured graph itself."""
    twin = Experiment(serial=experiment.serial)
    lacks_one = Experiment(serial=experiment.serial, without=experiment.without)
    is_same = Trial(arm=arm, experiment=twin, outcome="same") in trials
    if experiment != lacks_one or not experiment.without or not is_same:
        return None
    return Trial(
        arm=arm,
        experiment=experiment,
        outcome="same",
        reason=f"its graph is serial as captured: see without {experiment.without}",
    )


def _refused(arm: str, experiment: Experiment, reason: str) -> Trial:
    return Trial(arm=arm, experiment=experiment, outcome="refused", reason=reason)


def _tried(bench: Bench, asked: list[_Asked]) -> list[Trial]:
    if bench.recipe is None:
        return [_refused(one.arm, one.experiment, _NO_RECIPE) for one in asked]
    passes = min(bench.study.lengths)
    device = str(bench.workload.feed.device)
    runs = [one.run for one in asked]
    reasons = first_runs(bench.recipe, runs, passes, device, bench.ahead)
    for run in runs:
        if reasons[run] == GAVE_UP_AS_CAPTURED:
            msg = f"{run.arm} is wrong: {reasons[run]}, in a process of its own"
            raise BackendError(msg)
    trials = []
    for one in asked:
        reason = reasons[one.run] or _why_not_here(bench, one)
        if reason:
            trials.append(_refused(one.arm, one.experiment, reason))
        else:
            trials.append(
                Trial(
                    arm=one.arm,
                    experiment=one.experiment,
                    outcome="measured",
                    edges_changed=one.change.edges_changed,
                    nodes_disabled=len(one.change.disabled),
                )
            )
        bench.progress.advance()
    return trials


def _why_not_here(bench: Bench, asked: _Asked) -> str:
    """Make the edited graphs of this capture; why that must not be, or nothing."""
    before = bench.experiments.get(asked.arm, ())
    bench.experiments[asked.arm] = (*before, asked.experiment)
    with blaming(asked.arm, [asked.experiment]):
        try:
            bench.edit(asked.arm, asked.experiment)
            # Where the captured graph was warmed too, nobody knows which gave up: then
            # the next look is at that one, and refuses the arm.
            is_alone = not asked.experiment.without
            if is_alone and has_given_up(bench.workload, asked.arm):
                reason = GAVE_UP
            else:
                reason = why_wrong(bench, asked.arm, asked.experiment)
        except MeasurementError as error:
            reason = str(error)
    if reason:
        bench.drop(asked.arm, asked.experiment)
    return reason


def check_variants(bench: Bench) -> None:
    """Check the edited graphs of a fresh capture; discard experiments that are wrong.

    So are those that could not be made of it. Samples that were made of them before
    stay in the run; its header says that they are not to be used.
    """
    for arm, experiment, reason in bench.not_made:
        discard(bench, arm, experiment, reason)
    bench.not_made.clear()
    for arm, experiments in list(bench.experiments.items()):
        for experiment in experiments:
            if (arm, experiment.name, bench.study.passes) not in bench.variants:
                continue
            with blaming(arm, [experiment]):
                reason = why_wrong(bench, arm, experiment)
            if reason:
                discard(bench, arm, experiment, reason)


def discard(bench: Bench, arm: str, experiment: Experiment, reason: str) -> None:
    """Go on without an experiment whose results were found to be others."""
    header = bench.writer.header
    header.trials = [
        Trial(arm=arm, experiment=experiment, outcome="discarded", reason=reason)
        if (trial.arm, trial.experiment) == (arm, experiment)
        else trial
        for trial in header.trials
    ]
    bench.drop(arm, experiment)


def why_wrong(bench: Bench, arm: str, experiment: Experiment) -> str:
    """Run the captured and the edited graph on one step; how their results differ.

    What a knock-out leaves out must be there from the captured graph's run, and its
    results must then have the same bits. Any other edit does all the work itself, on
    poisoned memory.

    Raises:
        BackendError: the arm's kernels gave up waiting in the captured graph.
    """
    lengths = sorted({length for owner, length in bench.replays if owner == arm})
    reasons = (_why_wrong(bench, arm, experiment, length) for length in lengths)
    return next(filter(None, reasons), "")


def _why_wrong(bench: Bench, arm: str, experiment: Experiment, passes: int) -> str:
    workload = bench.workload
    bench.restart(hold=2)
    _launch(bench, bench.replay(arm, CAPTURED, passes))
    refuse_given_up(bench, arm)
    before = kept(workload.outputs(arm, passes))
    if not experiment.without:
        workload.poison()
    _launch(bench, bench.replay(arm, experiment.name, passes))
    if has_given_up(workload, arm):
        return GAVE_UP
    after = workload.outputs(arm, passes)
    return why_other(before, after, None if experiment.without else workload.bound(arm))


@contextmanager
def blaming(arm: str, experiments: Sequence[Experiment]) -> Iterator[None]:
    """Say which experiments were running when the device failed, in one line.

    Raises:
        DeviceLostError: it did; nothing more can be measured in this process.
    """
    try:
        yield
    except RuntimeError as error:
        names = " or ".join(experiment.name for experiment in experiments)
        msg = (
            f"{arm}, {names}: {describe(error)}; no more can be measured in this "
            "process: run again with --no-experiments"
        )
        raise DeviceLostError(msg) from error


def _launch(bench: Bench, replay: Replay) -> None:
    bench.player.wait()
    replay.launch()
    bench.next_step()
    bench.player.wait()
