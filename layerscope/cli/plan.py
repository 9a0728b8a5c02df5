"""From the options of ``layerscope profile`` to a `Study` and where it runs."""

import os
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path

import torch

from layerscope import registry
from layerscope.cli.arms import parse_arms
from layerscope.cli.options import ProfileOptions
from layerscope.errors import BackendError, InputError
from layerscope.graphs.device import facts
from layerscope.layers.model_config import model_from_folder
from layerscope.layers.presets import PRESETS, preset
from layerscope.layers.spec import DType, LayerSpec, ModelShape
from layerscope.study import ANCHOR_LENGTHS, EAGER_LENGTHS, Arm, Study

_MIN_PASSES = 3  # the first and the last of a replay are left out of the shares


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
    device: str
    """Type of the torch device: ``cpu`` or ``cuda``."""

    model_folder: Path | None
    """Folder of a checkpoint; None for a preset, whose weights are drawn."""

    output: Path

    left_out: tuple[str, ...]
    """Backends that no one named and that do not fit, each with its reasons."""


def plan(options: ProfileOptions, device: torch.device) -> Plan:
    """Fill in the defaults of `device`, and check all that can be checked unmeasured.

    Raises:
        InputError: an option is out of range, names nothing, or contradicts another.
    """
    _check(options)
    defaults = ON_CPU if device.type == "cpu" else ON_GPU
    model, folder = _model(options.model or defaults.model)
    spec = _spec(options, model, defaults)
    spec.check()
    if options.arms is None:
        arms, left_out = _fitting_arms(spec, device)
    else:
        arms, left_out = parse_arms(options.arms), ()
    study = Study(
        spec=spec,
        arms=arms,
        seed=options.seed,
        samples=options.samples,
        lengths=_lengths(options.passes, defaults.lengths),
        captures=options.captures,
        time_budget_s=options.time_budget,
    )
    return Plan(
        study=study,
        device=device.type,
        model_folder=folder,
        output=options.output or _new_run(model.name),
        left_out=left_out,
    )


def _check(options: ProfileOptions) -> None:
    minima = {
        "samples": (options.samples, 1),
        "captures": (options.captures, 1),
        "passes": (options.passes, _MIN_PASSES),
    }
    reasons = [
        f"--{name} is {value}, and must be at least {low}"
        for name, (value, low) in minima.items()
        if value is not None and value < low
    ]
    if not (isfinite(options.time_budget) and options.time_budget > 0):
        reasons.append(
            f"--time-budget is {options.time_budget:g}, and must be a number of "
            "seconds above 0"
        )
    if options.tp > 1 and not options.shard_shaped:
        reasons.append(
            f"--tp {options.tp} needs {options.tp} GPUs, which cannot be measured yet; "
            "add --shard-shaped to measure one rank's slice on one GPU"
        )
    if reasons:
        raise InputError("; ".join(reasons))


def _model(text: str) -> tuple[ModelShape, Path | None]:
    """The model a preset or a folder describes; the name of a preset wins."""
    folder = Path(text).expanduser()
    if text not in PRESETS and (os.sep in text or folder.is_dir()):
        return model_from_folder(folder), folder
    return preset(text), None


def _spec(options: ProfileOptions, model: ModelShape, defaults: Defaults) -> LayerSpec:
    dtype = options.dtype or defaults.dtype
    return LayerSpec(
        model=model,
        layer=options.layer,
        dtype=dtype,
        weight_dtype=options.weights or dtype,
        requests=options.requests,
        draft_tokens=options.draft_tokens,
        context=defaults.context if options.context is None else options.context,
        page_size=options.page_size,
        tp=options.tp,
        shard_shaped=options.shard_shaped,
        routing=options.routing,
    )


def _fitting_arms(
    spec: LayerSpec, device: torch.device
) -> tuple[tuple[Arm, ...], tuple[str, ...]]:
    """The reference and every other backend that can run `spec`; and why others not."""
    arms, left_out = [Arm(backend=registry.FALLBACK)], []
    for name in registry.discover():
        if name == registry.FALLBACK:
            continue
        try:
            reasons = registry.load(name).refusals(spec, facts(device))
        except BackendError as error:
            reasons = [str(error)]
        if reasons:
            left_out.append(f"{name}: {'; '.join(reasons)}")
        else:
            arms.append(Arm(backend=name))
    return tuple(arms), tuple(left_out)


def _lengths(passes: int | None, default: tuple[int, ...]) -> tuple[int, ...]:
    """Lengths of replays up to `passes`, in as many equal steps as by default."""
    if passes is None:
        return default
    steps = len(default)
    return tuple(passes * step // steps for step in range(1, steps + 1))


def _new_run(model: str) -> Path:
    """A folder named by the present local time and the model."""
    time = datetime.now(UTC).astimezone().strftime("%Y%m%d-%H%M%S")
    name = re.sub(r"[^\w.-]+", "-", model)
    return Path("layerscope-runs") / f"{time}-{name}"
