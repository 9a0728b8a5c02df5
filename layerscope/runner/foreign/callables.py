"""Foreign code as arms: any callables, on the same inputs, as one study."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path

import msgspec
import torch

from layerscope.errors import InputError, MeasurementError
from layerscope.experiment import Experiment, usual
from layerscope.graphs import device as devices
from layerscope.progress import Progress, SilentProgress
from layerscope.run import Run, RunWriter, new_run_folder
from layerscope.runner.bench import open_bench
from layerscope.runner.ending import partial_on_failure
from layerscope.runner.foreign.arguments import Given
from layerscope.runner.foreign.arms import Functions, Patterns, arms_of, patterns_of
from layerscope.runner.foreign.first_calls import FirstCalls
from layerscope.runner.foreign.inputs import Drawn, draw
from layerscope.runner.foreign.workload import ForeignArm, ForeignWorkload, wait_for
from layerscope.runner.launches import watched_launches
from layerscope.runner.phases import run_phases
from layerscope.runner.setting import RunnerOptions, finish, open_setting
from layerscope.runner.workload import Recipe
from layerscope.study import (
    ANCHOR_LENGTHS,
    EAGER_LENGTHS,
    Arm,
    CallableSpec,
    Study,
    count_reasons,
    lengths_up_to,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallableOptions:
    """How callables are measured; what is None follows from the device."""

    output: Path | str | None = None
    """Folder of the run, new or empty; None makes one below ``layerscope-runs``."""

    device: str = "auto"
    """``cpu`` or ``cuda``, where inputs must then be; ``auto`` is where they are."""

    tolerance: float | None = None
    """Largest relative error against the first arm that is taken as equal. None is the
    default of the least precise type among the results: 1e-2 for bfloat16, 2e-3 for
    float16, 1e-4 for float32, 1e-10 for float64, 5e-2 for float8_e4m3fn; complex64 is
    like float32, complex128 like float64. Integers must be equal."""

    samples: int = 800
    """Passes an arm, at least."""

    passes: int | None = None
    """Passes of the longest replay; None is 24 on a GPU and 8 on a CPU."""

    captures: int = 8
    """Fresh captures of every arm; a verdict needs three."""

    seed: int = 0
    """Fixes the order of arms."""

    time_budget_s: float = 80.0
    """Seconds that measuring may take; the first calls of the arms come before."""

    recorder: str = "auto"
    """``auto``, ``cupti``, ``torch.profiler`` or ``none``."""

    experiments: bool = True
    """Whether graphs are edited: serial twins, and regions left out."""

    edits: Sequence[str] = ()
    """More experiments, as `Experiment.parse` takes them: ``serial moe``."""

    skippable: Sequence[str] = ()
    """Regions that may be left out of a graph: what they wrote in the replay before is
    then read again. None of their kernels may be waited for by another."""

    recipe: Recipe | None = None
    """How another process makes the same arms. Edited graphs run there first, and are
    refused without one; a script has one."""

    command: list[str] = field(default_factory=list)
    """What the user typed, for the record."""

    progress: Progress = field(default_factory=SilentProgress)


def profile(
    arms: Mapping[str, Functions],
    inputs: Given | Callable[[int], Given] = (),
    regions: Mapping[str, str | Sequence[str]] | None = None,
    options: CallableOptions | None = None,
) -> Run:
    """Measure callables against the first of them, under graphs on a GPU.

    A pass calls an arm once, without gradients. Its regions are those that it marks
    with `layerscope.region`, or those of its modules. All arms must give what the first
    gives, and the same again when they are called again on the same inputs. What counts
    is the tensors that they return, in tuples, dictionaries or dataclasses, and the
    arguments that the first arm changes in place. These changes carry from pass to pass
    within a replay; every replay begins with the inputs as they were given, and with
    the lists and dictionaries that hold them. Other objects are shared by all calls.

    Args:
        arms: by name; a callable, or several that take turns, one a pass, so that every
            pass reads weights of its own as the layers of a model do.
        inputs: what every call gets: a sequence of arguments, or keyword arguments by
            name; or a function of a step (0 to 31) that makes either, so that replays
            compute on something new. They are copied, with their strides; tensors, also
            nested ones, must be on the device to be measured, and only their values may
            differ between steps.
        regions: shell patterns of module names by region, for arms that are modules or
            their methods, such as ``{"attention": "self_attn", "moe": "mlp*"}``.
        options: see `CallableOptions`.

    Returns:
        The run, as `layerscope.load` would read it.

    Raises:
        InputError: an argument cannot be used.
        MeasurementError: the device cannot measure it, or an arm cannot be captured.
        BackendError: an arm computes something else than the first one.
        RecordError: the run could not be written.
        Exception: whatever an arm raises when it is first called.
    """
    options = options or CallableOptions()
    _check(options)
    patterns = patterns_of(regions or {})
    foreign = arms_of(arms, patterns)
    drawn = draw(inputs)
    device = _device(options.device, drawn, foreign)
    reasons = devices.refusals(device)
    if reasons:
        raise MeasurementError("; ".join(reasons))
    with _computing_on(device):
        return _run(foreign, drawn, device, patterns, options)


def _run(
    arms: dict[str, ForeignArm],
    drawn: Drawn,
    device: torch.device,
    patterns: Patterns,
    options: CallableOptions,
) -> Run:
    output = Path(options.output or new_run_folder("callables"))
    setting = open_setting(
        device,
        RunnerOptions(
            output=output,
            recorder=options.recorder,
            command=options.command,
            progress=options.progress,
        ),
    )
    study = _study(arms, drawn, device, patterns, options)
    writer = RunWriter(output, setting.header(study))
    with partial_on_failure(writer):
        began_s = time.monotonic()
        calls = FirstCalls(arms, drawn, device, options.tolerance)
        workload = _workload(calls, setting.progress, options.skippable)
        study = _settled(study, workload.feed.steps, workload.tolerance)
        writer.header.study = study
        writer.header.warnings += calls.warnings(patterns.keys())
        writer.checkpoint()  # from here on a killed run can be read, and says so
        called_s = time.monotonic()
        budget_s = study.time_budget_s
        bench = open_bench(workload, writer, setting.options, budget_s, options.recipe)
        with watched_launches(bench) as note:
            run_phases(bench, setting.recorder, note)
        return finish(writer, began_s, called_s, before="first calls")


def _workload(
    calls: FirstCalls, progress: Progress, skippable: Sequence[str]
) -> ForeignWorkload:
    """Call every arm, and make them ready to be captured."""
    tolerance = calls.run(progress)
    inputs = calls.drawn.settled(calls.written, calls.device)
    arms, kept = dict(calls.arms), frozenset(calls.kept)
    workload = ForeignWorkload(inputs, arms, tolerance, kept, tuple(skippable))
    wait_for(calls.device)
    return workload


def rebuild(
    arms: Mapping[str, Functions],
    inputs: Given | Callable[[int], Given],
    regions: Mapping[str, str | Sequence[str]],
    options: CallableOptions,
) -> ForeignWorkload:
    """The workload of `profile` alone, where edited graphs run first.

    Arguments are those of `profile`.
    """
    foreign = arms_of(arms, patterns_of(regions))
    drawn = draw(inputs)
    device = _device(options.device, drawn, foreign)
    calls = FirstCalls(foreign, drawn, device, options.tolerance)
    return _workload(calls, options.progress, options.skippable)


@contextmanager
def _computing_on(device: torch.device) -> Iterator[None]:
    with devices.spare_core(device), torch.no_grad():
        if device.type == "cuda":
            with torch.cuda.device(device):
                yield
        else:
            yield


def _check(options: CallableOptions) -> None:
    counts = {
        "samples": options.samples,
        "captures": options.captures,
        "passes": options.passes,
    }
    reasons = count_reasons(counts, {"time_budget_s": options.time_budget_s})
    try:
        list(map(Experiment.parse, options.edits))
    except ValueError as error:
        reasons.append(f"edits: {error}")
    tolerance = options.tolerance
    if tolerance is not None and not (isfinite(tolerance) and tolerance >= 0):
        reasons.append(f"tolerance is {tolerance:g}, and must be 0 or above")
    if reasons:
        raise InputError("; ".join(reasons))


def _device(name: str, drawn: Drawn, arms: dict[str, ForeignArm]) -> torch.device:
    """Where the inputs are, else the weights of an arm, else what `name` says."""
    weights = (
        tensor.device
        for arm in arms.values()
        for root in arm.roots
        if root is not None
        for tensor in (*root.parameters(), *root.buffers())
    )
    found = drawn.device or next(weights, None)
    if found is None:
        return devices.resolve(name)
    if found.type not in devices.DEVICES:
        msg = f"inputs are on {found}; move them to cpu or cuda"
        raise InputError(msg)
    if name != "auto" and devices.resolve(name).type != found.type:
        msg = f"device is {name}, but the inputs are on {found}; move them"
        raise InputError(msg)
    return found


def _study(
    arms: dict[str, ForeignArm],
    drawn: Drawn,
    device: torch.device,
    patterns: Patterns,
    options: CallableOptions,
) -> Study:
    """The plan, as far as it is known before the arms were called."""
    default = EAGER_LENGTHS if device.type == "cpu" else ANCHOR_LENGTHS
    return Study(
        spec=CallableSpec(
            inputs=drawn.layout.described,
            regions=patterns,
            tolerance=options.tolerance or 0.0,
        ),
        arms=tuple(Arm(backend=name) for name in arms),
        seed=options.seed,
        samples=options.samples,
        lengths=lengths_up_to(options.passes, default),
        captures=options.captures,
        experiments=_experiments(options, device),
        steps=len(drawn.rows),
        time_budget_s=options.time_budget_s,
    )


def _experiments(
    options: CallableOptions, device: torch.device
) -> tuple[Experiment, ...]:
    if device.type == "cpu" or not options.experiments:
        if options.edits:
            msg = "experiments are asked for where none is made: on a CPU, or by choice"
            raise InputError(msg)
        return ()
    more = map(Experiment.parse, options.edits)
    return tuple(dict.fromkeys((*usual(options.skippable), *more)))


def _settled(study: Study, steps: int, tolerance: float) -> Study:
    """`study` with what the first calls have shown."""
    spec = msgspec.structs.replace(study.spec, tolerance=tolerance)
    return msgspec.structs.replace(study, spec=spec, steps=steps)
