"""Carries the self-test out: a study a case, its ledger, and what is found of it."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import torch

from layerscope.analyze.causes import Cause
from layerscope.analyze.ledger import ledger
from layerscope.analyze.statistics import (
    Comparison,
    compare,
    noise_floor,
    paired,
    pass_times,
)
from layerscope.errors import BackendError, MeasurementError, describe
from layerscope.experiment import SERIAL
from layerscope.progress import Progress
from layerscope.run import Run, RunWriter
from layerscope.run_header import KernelCost
from layerscope.runner.bench import open_bench
from layerscope.runner.ending import partial_on_failure
from layerscope.runner.first_runs import KnownRuns
from layerscope.runner.launches import watched_launches
from layerscope.runner.phases import run_phases
from layerscope.runner.setting import RunnerOptions, Setting, finish, open_setting
from layerscope.selftest.balancing import balanced
from layerscope.selftest.cases import BASE, CASES, OTHER, Case, Chain, Demand
from layerscope.selftest.judging import Outcome, failed, judge, judge_mixture
from layerscope.selftest.mixtures import CAUSES_ADDED, MIXTURES, arm_before
from layerscope.selftest.plan import MIXED_NAME, Planted, planted_arms
from layerscope.selftest.together import edited_arms, run_first
from layerscope.selftest.workload import STEPS, PlantedWorkload
from layerscope.study import AA_SUFFIX, ANCHOR_LENGTHS, Arm, CallableSpec, Study

_CAPTURES: Final = 5

_BUDGET_S: Final = 12.0
"""About twice what a study takes; where the device is noisy, rounds are added."""

_TARGET: Final = 0.02
"""Wider than usual, for what is planted is wider still."""


@dataclass(slots=True)
class _Shared:
    """What is found once, for all studies."""

    first_runs: Mapping[str, KnownRuns]
    """What became of the edited graphs of each study, by its name."""

    observer_costs: list[KernelCost] = field(default_factory=list)
    """What the recorder costs; none before the first study."""


def run_selftest(
    names: Sequence[str], device: torch.device, options: RunnerOptions
) -> Iterator[Outcome]:
    """Measure the studies of `names` one after another, and judge each.

    A study that cannot be measured has failed; the others are still made.

    Args:
        names: of `plan.NAMES`.
        device: from `machine.usable_device`.
        options: `output` is a folder for the folders of the runs, by name.

    Raises:
        InputError: a folder cannot be used.
        RecordError: a run cannot be written.
    """
    with torch.no_grad(), torch.cuda.device(device):
        setting = open_setting(device, options)
        if edited := [*edited_arms(names)]:
            what = "running edited graphs elsewhere first"
            options.progress.phase(what, len(edited))
        shared = _Shared(run_first(names, device))
        for name in names:
            progress = _Named(name, options.progress)
            here = replace(options, progress=progress)
            named = replace(setting, options=here)
            if name == MIXED_NAME:
                yield from _mixtures(named, shared)
            else:
                case = next(case for case in CASES if case.name == name)
                yield _case(case, named, shared)


def study_of(arms: Mapping[str, Chain], vector: torch.Tensor) -> Study:
    """The plan for planted `arms`.

    Args:
        arms: by name; the others are compared with the first.
        vector: what they update.
    """
    described = f"int32 {[*vector.shape]}"
    return Study(
        spec=CallableSpec(inputs=(described,), tolerance=0.0),
        arms=tuple(Arm(backend=name) for name in arms),
        experiments=(SERIAL,),
        captures=_CAPTURES,
        steps=STEPS,
        time_budget_s=_BUDGET_S,
        target_interval=_TARGET,
    )


def _case(case: Case, setting: Setting, shared: _Shared) -> Outcome:
    told = partial(
        Outcome,
        name=case.name,
        difference=case.difference,
        expected=case.expected,
    )
    try:
        if case.demand is Demand.BALANCE:
            case = balanced(case, setting.device)
        run = _measure(case.name, (case.arms, case.reads), setting, shared)
    except (BackendError, MeasurementError) as error:
        return told(judged=failed(describe(error)))
    found, change = ledger(run, BASE, OTHER), _compare(run, BASE, OTHER)
    return told(
        judged=judge(case, found, change),
        change=change,
        ledger=found,
        warnings=tuple(run.header.warnings),
    )


def _mixtures(setting: Setting, shared: _Shared) -> Iterator[Outcome]:
    outcomes = [
        partial(
            Outcome,
            name=" + ".join(added),
            difference=f"{', then '.join(added)} added",
            expected=frozenset[Cause]().union(*(CAUSES_ADDED[one] for one in added)),
        )
        for added in MIXTURES
    ]
    try:
        run = _measure(MIXED_NAME, planted_arms(MIXED_NAME), setting, shared)
    except (BackendError, MeasurementError) as error:
        yield from (told(judged=failed(describe(error))) for told in outcomes)
        return
    times = pass_times(run.samples)
    for told, added in zip(outcomes, MIXTURES, strict=True):
        ends = arm_before(added[0]), added[-1]
        found = ledger(run, *ends)
        marginals = {one: paired(times, arm_before(one), one) for one in added}
        judged, parts = judge_mixture(found, marginals)
        yield told(
            judged=judged,
            change=_compare(run, *ends),
            ledger=found,
            added=parts,
            warnings=tuple(run.header.warnings),
        )


def _compare(run: Run, base: str, other: str) -> Comparison:
    times = pass_times(run.samples)
    first = run.header.study.arms[0].name
    floor_ns = noise_floor(times, first, f"{first}{AA_SUFFIX}")
    return compare(times, base, other, floor_ns)


def _measure(name: str, planted: Planted, setting: Setting, shared: _Shared) -> Run:
    began_s = time.monotonic()
    arms, reads = planted
    workload = PlantedWorkload(arms, reads, max(ANCHOR_LENGTHS), setting.device)
    torch.cuda.synchronize(setting.device)
    made_s = time.monotonic()
    (pool,) = workload.feed.pools
    study = study_of(arms, pool.target)
    header = setting.header(study)
    header.weights = "random"
    header.observer_costs = shared.observer_costs
    writer = RunWriter(setting.options.output / name, header)
    with partial_on_failure(writer):
        writer.checkpoint()  # from here on a killed run can be read, and says so
        known = shared.first_runs[name]
        budget_s = study.time_budget_s
        bench = open_bench(workload, writer, setting.options, budget_s, known)
        with watched_launches(bench) as note:
            run_phases(bench, setting.recorder, note)
        shared.observer_costs = header.observer_costs
        return finish(writer, began_s, made_s)


@dataclass(frozen=True, slots=True)
class _Named:
    """Says of which study a phase is."""

    name: str
    progress: Progress

    def phase(self, name: str, total: int) -> None:
        self.progress.phase(f"{self.name}: {name}", total)

    def advance(self, steps: int = 1) -> None:
        self.progress.advance(steps)
