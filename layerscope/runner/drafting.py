"""The draft of a study: a second problem, measured into a run of its own."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import msgspec

from layerscope.errors import BackendError
from layerscope.graphs.players import has_cuda_bindings
from layerscope.layers.draft import (
    DraftOptions,
    DraftProblem,
    estimate_draft_bytes,
    make_draft,
)
from layerscope.layers.draft_spec import DraftSpec
from layerscope.registry import DispatchedDraft, dispatch_draft, load
from layerscope.run import DRAFT_FOLDER, RunWriter
from layerscope.run_header import RunHeader
from layerscope.runner.bench import open_bench
from layerscope.runner.draft import DraftWorkload
from layerscope.runner.ending import partial_on_failure
from layerscope.runner.first_runs import FIRST_RUN_STEPS, getting_ready
from layerscope.runner.idle import idle_switches
from layerscope.runner.launches import watched_launches
from layerscope.runner.phases import run_phases
from layerscope.runner.setting import Setting, finish
from layerscope.runner.workload import Recipe
from layerscope.study import Arm, Study, SwitchStudy

DRAFT_SHARE: Final = 0.3
"""Part of a study's time budget that is its draft's."""

_STEPS: Final = 8
"""Distinct base logits of every pass: those of a step are large."""


@dataclass(frozen=True, slots=True)
class DraftStudy:
    """A study of a draft, which is a study with a spec of that kind."""

    study: Study
    spec: DraftSpec

    @property
    def options(self) -> DraftOptions:
        """How its problem is made, but for the device."""
        study = self.study
        return DraftOptions(passes=study.passes, steps=study.steps, seed=study.seed)


def draft_study(study: Study) -> DraftStudy | None:
    """The draft's part of `study`: the same arms, in its share of the time.

    None where the study has no draft, or no arm's backend has one.
    """
    spec = study.draft
    if spec is None or all(load(arm.backend).build_draft is None for arm in study.arms):
        return None
    switches = study.draft_switches or SwitchStudy()
    return DraftStudy(
        msgspec.structs.replace(
            study,
            spec=spec,
            draft=None,
            experiments=tuple(one for one in study.experiments if not one.without),
            taken_apart=switches.taken_apart,
            switch_arms=switches.arms,
            switch_experiments=switches.experiments,
            draft_switches=None,
            stamp_arms=(),  # its kernels note nothing
            steps=_STEPS,
            time_budget_s=study.time_budget_s * DRAFT_SHARE,
        ),
        spec,
    )


def draft_bytes(draft: DraftStudy) -> int:
    """Device bytes of the draft's problem."""
    return estimate_draft_bytes(draft.spec, draft.options)


def profile_draft(draft: DraftStudy, setting: Setting) -> None:
    """Measure the draft of every arm that has one, beside the layer's run.

    Raises:
        BackendError: an arm cannot be built, or drafts wrong tokens.
        MeasurementError: the device cannot measure it.
        RecordError: the run could not be written; what was saved before is kept.
    """
    study = draft.study
    folder = setting.options.output / DRAFT_FOLDER
    header, facts = setting.header(study), setting.environment.device
    with_draft = [arm for arm in study.arms if load(arm.backend).build_draft]
    header.idle_switches = idle_switches(with_draft, draft.spec, facts)
    writer = RunWriter(folder, header)
    is_edited = bool(study.experiments) and has_cuda_bindings(setting.device)
    with partial_on_failure(writer), getting_ready(is_wanted=is_edited) as ahead:
        writer.checkpoint()
        began_s = time.monotonic()
        setting.progress.phase(f"making {study.passes} passes of the draft", 1)
        options = replace(draft.options, device=str(setting.device))
        problem = make_draft(draft.spec, options)
        setting.progress.advance()
        writer.header.weights = f"random, seed {study.seed}"
        made_s = time.monotonic()
        workload = _build(study, problem, writer.header, setting)
        recipe = Recipe(
            factory=f"{__name__}:{rebuild_draft.__name__}",
            arguments={"study": msgspec.to_builtins(study)},
        )
        budget_s = study.time_budget_s
        bench = open_bench(workload, writer, setting.options, budget_s, recipe)
        bench.ahead = ahead
        with watched_launches(bench) as note:
            run_phases(bench, setting.recorder, note)
        finish(writer, began_s, made_s)


def rebuild_draft(
    study: dict[str, Any], *, arms: Sequence[str], passes: int, device: str
) -> DraftWorkload:
    """The draft of a study once more, in the process where graphs run first.

    Args:
        study: of a draft, as `msgspec.to_builtins` made it.
        arms: names of those to build.
        passes: distinct ones to make.
        device: of torch.
    """
    planned = msgspec.convert(study, Study)
    spec = planned.spec
    if not isinstance(spec, DraftSpec):
        msg = f"a study of {type(spec).__name__} has no draft"
        raise TypeError(msg)
    options = DraftOptions(
        passes=passes, steps=FIRST_RUN_STEPS, seed=planned.seed, device=device
    )
    problem = make_draft(spec, options)
    made = {
        arm.name: dispatch_draft(arm, problem)
        for arm in planned.built_arms
        if arm.name in arms
    }
    return DraftWorkload(
        problem, {name: one for name, one in made.items() if one is not None}
    )


def _build(
    study: Study, problem: DraftProblem, header: RunHeader, setting: Setting
) -> DraftWorkload:
    """Build the draft of every arm that has one; the header's study keeps only those.

    An arm without one would be the fallback's arm once more.
    """
    built: dict[str, DispatchedDraft] = {}

    def build(arm: Arm) -> None:
        setting.progress.phase(f"building the draft of {arm.name}", 1)
        made = setting.build(arm, partial(dispatch_draft, arm, problem))
        if isinstance(made, str):
            header.warnings.append(made)
        elif made is None:
            header.warnings.append(f"{arm.name} has no draft for this step")
        else:
            built[arm.name] = made
        setting.progress.advance()

    for arm in study.built_arms:
        build(arm)
    kept = study.keeping(built)
    if not kept.arms:
        msg = "no arm has a draft for this step; leave it out: --no-draft"
        raise BackendError(msg)
    header.builds = [dispatched.build for dispatched in built.values()]
    header.w2_reads = {name: one.step.w2_reads for name, one in built.items()}
    build(kept.all_arms[-1])
    header.study = kept
    return DraftWorkload(problem, built)
