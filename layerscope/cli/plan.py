"""From the options of a command to the layer, the `Study` and where it runs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch

from layerscope import coverage, registry
from layerscope.cli.arms import parse_arms
from layerscope.cli.each_switch import with_each_switch
from layerscope.cli.options import LayerOptions, ProfileOptions
from layerscope.cli.stamps import with_stamps
from layerscope.errors import BackendError, InputError
from layerscope.experiment import ALL, PASSES, Experiment, usual
from layerscope.graphs.device import facts
from layerscope.layers.draft_spec import DraftSpec, draft_of
from layerscope.layers.model_config import model_from_folder, weights_in_folder
from layerscope.layers.presets import PRESETS, preset
from layerscope.layers.spec import DType, LayerSpec, ModelShape
from layerscope.regions import Region
from layerscope.run import new_run_folder
from layerscope.study import (
    ANCHOR_LENGTHS,
    EAGER_LENGTHS,
    Arm,
    Study,
    count_reasons,
    lengths_up_to,
)

_OFF: Final = "--no-experiments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """What a kind of device measures unless told otherwise."""

    model: str
    context: int
    dtype: DType
    lengths: tuple[int, ...]


ON_CPU = Defaults(
    model="tiny-moe", context=512, dtype=DType.FLOAT32, lengths=EAGER_LENGTHS
)
ON_GPU = Defaults(
    model="qwen3-30b-a3b", context=8192, dtype=DType.BFLOAT16, lengths=ANCHOR_LENGTHS
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A study, the device it runs on, and where its run goes."""

    study: Study
    spec: LayerSpec
    """The study's own."""

    device: str
    """Type of the torch device: ``cpu`` or ``cuda``."""

    model_folder: Path | None
    """Folder of a checkpoint; None for a preset, whose weights are drawn."""

    output: Path

    optional: frozenset[str]
    """Arms that no one named: one that fails is left out."""

    left_out: tuple[str, ...]
    """Backends that no one named and that do not fit, each with its reasons."""


def plan(options: ProfileOptions, device: torch.device) -> Plan:
    """Fill in the defaults of `device`, and check all that can be checked unmeasured.

    Raises:
        InputError: an option is out of range, names nothing, or contradicts another.
    """
    _check(options)
    defaults = _defaults(device)
    spec, folder = layer(options, device)
    draft = None if options.no_draft else draft_of(spec)
    if options.arms is None:
        arms, left_out = _fitting_arms(spec, draft, device)
    else:
        arms, left_out = parse_arms(options.arms), ()
    asked_for = () if options.arms is None else arms
    optional = frozenset(arm.name for arm in arms[1:] if arm not in asked_for)
    study = Study(
        spec=spec,
        arms=arms,
        draft=draft,
        experiments=_experiments(options, spec, device),
        seed=options.seed,
        samples=options.samples,
        lengths=lengths_up_to(options.passes, defaults.lengths),
        captures=options.captures,
        time_budget_s=options.time_budget,
    )
    if options.each_switch:
        study = with_each_switch(study, facts(device))
        of_draft = study.draft_switches.arms if study.draft_switches else ()
        optional |= {arm.name for arm in (*study.switch_arms, *of_draft)}
    if options.stamps:
        study = with_stamps(study, spec)
        optional |= {arm.name for arm in study.stamp_arms}
    return Plan(
        study=study,
        spec=spec,
        device=device.type,
        model_folder=folder,
        output=options.output or new_run_folder(spec.model.name),
        optional=optional,
        left_out=left_out,
    )


def layer(options: LayerOptions, device: torch.device) -> tuple[LayerSpec, Path | None]:
    """The layer that `options` describe, and the folder of its checkpoint, if any.

    Raises:
        InputError: an option is out of range, names nothing, or contradicts another.
    """
    reasons = _rank_reasons(options)
    if reasons:
        raise InputError("; ".join(reasons))
    defaults = _defaults(device)
    model, folder = _model(options.model or defaults.model)
    spec = _spec(options, defaults, model, folder)
    spec.check()
    return spec, folder


def _experiments(
    options: ProfileOptions, spec: LayerSpec, device: torch.device
) -> tuple[Experiment, ...]:
    """What is asked of every arm; nothing where there are no graphs to edit."""
    more = asked_for(options.experiment)
    _check_regions(more, spec)
    if options.no_experiments or device.type == "cpu":
        if more:
            off = f"{_OFF} leaves them out"
            why = off if options.no_experiments else "a CPU has no graphs"
            msg = f"--experiment asks for edited graphs, and {why}"
            raise InputError(msg)
        return ()
    return tuple(dict.fromkeys((*usual(spec.regions), *more)))


def _check_regions(experiments: Sequence[Experiment], spec: LayerSpec) -> None:
    """Refuse a region that neither the layer nor its draft has, before all is measured.

    Raises:
        InputError: naming it, and those that there are.
    """
    known = (*spec.regions, Region.OTHER, Region.DRAFT)
    scopes = ("", ALL, PASSES)
    for one in experiments:
        for name in (one.serial, one.without, one.delay.partition("/")[0]):
            if name not in (*scopes, *known):
                msg = (
                    f"--experiment {one.name!r}: {spec.model.name} has no region "
                    f"{name!r}; it has {', '.join(known)}"
                )
                raise InputError(msg)


def asked_for(texts: Sequence[str] | None) -> tuple[Experiment, ...]:
    """The experiments that ``--experiment`` names.

    Raises:
        InputError: it names none.
    """
    try:
        return tuple(Experiment.parse(text) for text in texts or ())
    except ValueError as error:
        msg = f"--experiment: {error}"
        raise InputError(msg) from error


def _defaults(device: torch.device) -> Defaults:
    return ON_CPU if device.type == "cpu" else ON_GPU


def _check(options: ProfileOptions) -> None:
    counts = {
        "--samples": options.samples,
        "--captures": options.captures,
        "--passes": options.passes,
    }
    reasons = count_reasons(counts, {"--time-budget": options.time_budget})
    reasons += _rank_reasons(options)
    if reasons:
        raise InputError("; ".join(reasons))


def _rank_reasons(options: LayerOptions) -> list[str]:
    if options.tp <= 1 or options.shard_shaped:
        return []
    why = f"--tp {options.tp} needs {options.tp} GPUs, which cannot be measured yet"
    return [f"{why}; add --shard-shaped to measure one rank's slice on one GPU"]


def _model(text: str) -> tuple[ModelShape, Path | None]:
    """The model a preset or a folder describes; the name of a preset wins."""
    folder = Path(text).expanduser()
    if text not in PRESETS and (os.sep in text or folder.is_dir()):
        return model_from_folder(folder), folder
    return preset(text), None


def _spec(
    options: LayerOptions, defaults: Defaults, model: ModelShape, folder: Path | None
) -> LayerSpec:
    dtype = options.dtype or defaults.dtype
    published = None if folder is None else weights_in_folder(folder)
    return LayerSpec(
        model=model,
        layer=options.layer,
        dtype=dtype,
        weight_dtype=options.weights or published or dtype,
        requests=options.requests,
        draft_tokens=options.draft_tokens,
        context=defaults.context if options.context is None else options.context,
        page_size=options.page_size,
        tp=options.tp,
        shard_shaped=options.shard_shaped,
        routing=options.routing,
    )


def _fitting_arms(
    spec: LayerSpec, draft: DraftSpec | None, device: torch.device
) -> tuple[tuple[Arm, ...], tuple[str, ...]]:
    """The reference and every other backend that can run `spec`; and why others not.

    Those that cannot tell what is idle in `draft` are among the others.
    """
    arms, left_out = [Arm(backend=registry.FALLBACK)], []
    for name in registry.discover():
        if name == registry.FALLBACK:
            continue
        arm = Arm(backend=name)
        try:
            backend = registry.load(name)
            reasons = registry.reasons(backend, arm, spec, facts(device), draft)
            reasons = reasons or coverage.why_all_left(backend, spec)
        except BackendError as error:
            reasons = [str(error)]
        if reasons:
            left_out.append(f"{name}: {'; '.join(reasons)}")
        else:
            arms.append(arm)
    return tuple(arms), tuple(left_out)
