"""The main job: check, build, measure the layer, then the draft if there is one."""

import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

from layerscope.arm_switches import check_switches
from layerscope.errors import InputError, LayerscopeError, MeasurementError
from layerscope.graphs import device as devices
from layerscope.graphs.memory import check_memory
from layerscope.graphs.players import has_cuda_bindings
from layerscope.layers.checkpoint import load_layer
from layerscope.layers.families import estimate_bytes
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.layers.spec import LayerSpec
from layerscope.registry import Dispatched, dispatch, reasons
from layerscope.registry import load as load_backend
from layerscope.run import Run, RunWriter, load
from layerscope.run_header import RunHeader
from layerscope.runner.bench import open_bench
from layerscope.runner.bounds import bound
from layerscope.runner.drafting import (
    DRAFT_SHARE,
    DraftStudy,
    draft_bytes,
    draft_study,
    profile_draft,
)
from layerscope.runner.ending import partial_on_failure
from layerscope.runner.first_runs import FIRST_RUN_STEPS, getting_ready
from layerscope.runner.idle import idle_switches
from layerscope.runner.launches import watched_launches
from layerscope.runner.layer import LayerWorkload
from layerscope.runner.phases import run_phases
from layerscope.runner.setting import RunnerOptions, Setting, finish, open_setting
from layerscope.runner.workload import Recipe
from layerscope.study import Study


def profile(study: Study, options: RunnerOptions) -> Run:
    """Measure every arm of `study` on this device and write the run.

    The layer's run is whole on disk before its draft begins.

    Raises:
        InputError: the spec, an arm, the device or the output cannot be used.
        MeasurementError: the device cannot measure it; all reasons at once.
        BackendError: an arm cannot be built or computes wrong numbers.
        RecordError: the run could not be written; what was saved before is kept.
        KeyboardInterrupt: interrupted; the partial run is readable.
        TypeError: the study is not one of a layer.
    """
    spec = study.spec
    if not isinstance(spec, LayerSpec):
        msg = f"a study of {type(spec).__name__} is not run by profile"
        raise TypeError(msg)
    spec.check()
    device = devices.resolve(options.device)
    with devices.spare_core(device), torch.no_grad():
        setting = open_setting(device, options)
        _refuse(study, spec, device)
        draft = draft_study(study)
        check_memory(device, _needed_bytes(study, spec, draft))
        study = _profile_layer(study, spec, setting, has_draft=draft is not None)
        draft = draft_study(study)
        if draft is not None:
            _profile_draft(draft, setting)
        return load(options.output)


def _profile_draft(draft: DraftStudy, setting: Setting) -> None:
    try:
        profile_draft(draft, setting)
    except LayerscopeError as error:
        shown = f"layerscope show {setting.options.output}"
        msg = f"{error}; the layer's run is whole: {shown}"
        raise type(error)(msg) from error


def _needed_bytes(study: Study, spec: LayerSpec, draft: DraftStudy | None) -> int:
    """Bytes of the larger of the study's problems, which never exist together."""
    layer_bytes = estimate_bytes(spec, study.passes, study.steps)
    return max(layer_bytes, 0 if draft is None else draft_bytes(draft))


def _refuse(study: Study, spec: LayerSpec, device: torch.device) -> None:
    """Collect every reason against measuring, before weights are made."""
    arms = study.built_arms
    backends = {arm.name: load_backend(arm.backend) for arm in arms}
    wrong = [
        f"{arm.name} {reason}"
        for arm in arms
        for reason in check_switches(arm, backends[arm.name])
    ]
    if wrong:
        raise InputError("; ".join(wrong))
    facts = devices.facts(device)
    refused: dict[tuple[str, str], list[str]] = {}
    for arm in arms:
        for reason in reasons(backends[arm.name], arm, spec, facts, study.draft):
            refused.setdefault((arm.backend, reason), []).append(arm.name)
    counts = Counter(arm.backend for arm in arms)
    told: dict[str, list[str]] = {}
    for (name, reason), names in refused.items():
        # Once where it is said of all arms of a backend, which may be many.
        told.setdefault(reason, []).extend(
            [name] if len(names) == counts[name] else names
        )
    found = devices.refusals(device) + [
        f"{', '.join(names)}{':' if len(names) > 1 else ''} {reason}"
        for reason, names in told.items()
    ]
    if told:
        found.append("see what fits here: layerscope backends")
    if found:
        raise MeasurementError("; ".join(found))


def _profile_layer(
    study: Study, spec: LayerSpec, setting: Setting, *, has_draft: bool
) -> Study:
    """Measure the layer; the study with the arms that were."""
    header = setting.header(study)
    header.idle_switches = idle_switches(study.arms, spec, setting.environment.device)
    header.warnings += [f"left out {arm}" for arm in setting.options.left_out]
    writer = RunWriter(setting.options.output, header)
    is_edited = bool(study.experiments) and has_cuda_bindings(setting.device)
    with partial_on_failure(writer), getting_ready(is_wanted=is_edited) as ahead:
        writer.checkpoint()  # from here on a killed run can be read, and says so
        began_s = time.monotonic()
        problem = _make_problem(study, spec, setting, writer.header)
        made_s = time.monotonic()
        workload = _build(study, problem, writer.header, setting)
        budget_s = study.time_budget_s * (1.0 - DRAFT_SHARE if has_draft else 1.0)
        if study.draft is not None and not has_draft:
            writer.header.warnings.append("no arm has a draft, so none was measured")
            header.study = msgspec.structs.replace(header.study, draft=None)
        recipe = _recipe(study, setting)
        bench = open_bench(workload, writer, setting.options, budget_s, recipe)
        bench.ahead, bench.read_stamps = ahead, workload.read_stamps
        with watched_launches(bench) as note:
            run_phases(bench, setting.recorder, note)
            if study.experiments:
                bound(bench, spec, note)
        return finish(writer, began_s, made_s).header.study


def _recipe(study: Study, setting: Setting) -> Recipe:
    folder = setting.options.model_folder
    return Recipe(
        factory=f"{__name__}:{rebuild.__name__}",
        arguments={
            "study": msgspec.to_builtins(study),
            "model_folder": None if folder is None else str(folder.resolve()),
        },
    )


def rebuild(
    study: dict[str, Any],
    model_folder: str | None,
    *,
    arms: Sequence[str],
    passes: int,
    device: str,
) -> LayerWorkload:
    """The layer of a study once more, in the process where edited graphs run first.

    Args:
        study: as `msgspec.to_builtins` made it.
        model_folder: where the layer's weights are; None draws random ones.
        arms: names of those to build.
        passes: distinct ones to make.
        device: of torch.
    """
    planned = msgspec.convert(study, Study)
    spec = planned.spec
    if not isinstance(spec, LayerSpec):
        msg = f"a study of {type(spec).__name__} has no layer"
        raise TypeError(msg)
    folder = None if model_folder is None else Path(model_folder)
    weights = None if folder is None else load_layer(folder, spec.model, spec.layer)
    options = ProblemOptions(
        passes=passes,
        steps=FIRST_RUN_STEPS,
        seed=planned.seed,
        device=device,
        weights=weights,
    )
    problem = make_problem(spec, options)
    chosen = [arm for arm in planned.built_arms if arm.name in arms]
    built = {arm.name: dispatch(arm, problem) for arm in chosen}
    return LayerWorkload(problem, built)


def _make_problem(
    study: Study, spec: LayerSpec, setting: Setting, header: RunHeader
) -> Problem:
    setting.progress.phase(f"making {study.passes} passes of weights and KV", 1)
    folder = setting.options.model_folder
    weights = None if folder is None else load_layer(folder, spec.model, spec.layer)
    problem = make_problem(
        spec,
        ProblemOptions(
            passes=study.passes,
            steps=study.steps,
            seed=study.seed,
            device=str(setting.device),
            weights=weights,
        ),
    )
    setting.progress.advance()
    random_weights = f"random, seed {study.seed}"
    header.weights = random_weights if weights is None else weights.origin(spec)
    if folder is not None and weights is None:
        header.warnings.append(
            f"{folder} holds no safetensors: weights are {random_weights}"
        )
    return problem


def _build(
    study: Study, problem: Problem, header: RunHeader, setting: Setting
) -> LayerWorkload:
    """Build every arm and note what was built, and what was not, in the header."""
    arms: dict[str, Dispatched] = {}
    again = study.all_arms[-1]
    for arm in (*study.built_arms, again):
        setting.progress.phase(f"building {arm.name}", 1)
        built = setting.build(arm, partial(dispatch, arm, problem))
        if isinstance(built, str):
            header.warnings.append(built)
        else:
            arms[arm.name] = built
        setting.progress.advance()
    header.study = study.keeping(arms)
    told = [built for name, built in arms.items() if name != again.name]
    header.builds = [built.build for built in told]
    header.decisions = [decision for built in told for decision in built.decisions]
    workload = LayerWorkload(problem, arms)
    header.distinct_experts = workload.distinct_experts
    return workload
