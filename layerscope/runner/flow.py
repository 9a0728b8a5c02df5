"""The main job: check, build, numerics, anchors, recording, anchors again."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import torch

from layerscope.environment import collect
from layerscope.errors import (
    InputError,
    LayerscopeError,
    MeasurementError,
    RecordError,
)
from layerscope.graphs import device as devices
from layerscope.graphs.memory import (
    check_memory,
    is_out_of_memory,
    out_of_memory,
    peak_memory_bytes,
)
from layerscope.layers.checkpoint import load_layer
from layerscope.layers.families import estimate_bytes
from layerscope.layers.problem import Problem, ProblemOptions, make_problem
from layerscope.progress import Progress, SilentProgress
from layerscope.record.recorder import Recorder
from layerscope.record.recorders import recorder_for
from layerscope.registry import check_switches, load
from layerscope.run import (
    HEADER_FILE,
    KERNELS_FILE,
    SAMPLES_FILE,
    NumericsCheck,
    RegionBytes,
    Run,
    RunHeader,
    RunWriter,
)
from layerscope.run import load as load_run
from layerscope.runner.anchors import Phase, measure
from layerscope.runner.bench import Bench, open_bench, required_per_region
from layerscope.runner.numerics import check_arms
from layerscope.runner.recording import record
from layerscope.study import FEWEST_CAPTURES, Study

_L2_FACTOR: Final = 5
"""Replays must touch this many times the L2 cache, so that no pass finds it warm."""

_ANCHOR_SHARE: Final = 0.4
"""Part of the time budget in which anchors may add to the planned rounds."""

_AFTER: Final = "after"
_ANCHOR: Final = "anchor"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    """What a run needs besides its study."""

    output: Path
    device: str = "auto"
    recorder: str = "auto"
    model_folder: Path | None = None
    """Where the layer's weights are read from; None makes seeded random ones."""

    command: list[str] = field(default_factory=list)
    progress: Progress = field(default_factory=SilentProgress)


def profile(study: Study, options: RunnerOptions) -> Run:
    """Measure every arm of `study` on this device and write the run.

    Raises:
        InputError: the spec, an arm, the device or the output cannot be used.
        MeasurementError: the device cannot measure it; all reasons at once.
        BackendError: an arm cannot be built or computes wrong numbers.
        RecordError: the run could not be written; what was saved before is kept.
        KeyboardInterrupt: interrupted; the partial run is readable.
    """
    study.spec.check()
    device = devices.resolve(options.device)
    with devices.spare_core(device), torch.no_grad():
        return _profile(study, device, options)


def _profile(study: Study, device: torch.device, options: RunnerOptions) -> Run:
    recorder = recorder_for(options.recorder, device)
    _refuse(study, device)
    header = RunHeader(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=options.command,
        study=study,
        environment=collect(devices.facts(device)),
        recorder=recorder.name if recorder else "",
    )
    check_memory(device, estimate_bytes(study.spec, study.passes, study.steps))
    writer = RunWriter(options.output, header)
    with _partial_on_failure(writer):
        writer.checkpoint()  # from here on a killed run can be read, and says so
        began_s = time.monotonic()
        problem = _make_problem(study, device, options, header)
        made_s = time.monotonic()
        bench = open_bench(study, problem, writer, options.progress)
        bench.deadline_s = made_s + study.time_budget_s
        _measure(bench, recorder)
        header.host_memory_bytes = peak_memory_bytes()
        header.seconds = {
            "weights": round(made_s - began_s, 1),
            "study": round(time.monotonic() - made_s, 1),
        }
        return writer.finish("complete")


def _refuse(study: Study, device: torch.device) -> None:
    """Collect every reason against measuring, before weights are made."""
    backends = {arm.name: load(arm.backend) for arm in study.arms}
    wrong = [
        f"{arm.name} {reason}"
        for arm in study.arms
        for reason in check_switches(arm, backends[arm.name])
    ]
    if wrong:
        raise InputError("; ".join(wrong))
    facts = devices.facts(device)
    reasons = devices.refusals(device) + [
        f"{name} {reason}"
        for name, backend in backends.items()
        for reason in backend.refusals(study.spec, facts)
    ]
    if reasons:
        raise MeasurementError("; ".join(reasons))


def _make_problem(
    study: Study, device: torch.device, options: RunnerOptions, header: RunHeader
) -> Problem:
    options.progress.phase(f"making {study.passes} passes of weights and KV", 1)
    spec, folder = study.spec, options.model_folder
    weights = None if folder is None else load_layer(folder, spec.model, spec.layer)
    problem = make_problem(
        spec,
        ProblemOptions(
            passes=study.passes,
            steps=study.steps,
            seed=study.seed,
            device=str(device),
            weights=weights,
        ),
    )
    options.progress.advance()
    random_weights = f"random, seed {study.seed}"
    header.weights = random_weights if weights is None else f"read from {folder}"
    if folder is not None and weights is None:
        header.warnings.append(f"{folder} holds no weights: they are {random_weights}")
    return problem


def _measure(bench: Bench, recorder: Recorder | None) -> None:
    study, header = bench.study, bench.writer.header
    required = required_per_region(bench.problem)
    header.bytes = [
        RegionBytes(
            arm=arm.name,
            region=region,
            touched=bench.arms[arm.name].steps[region].touched_bytes(region),
            required=required[region],
        )
        for arm in study.arms
        for region in bench.problem.spec.regions
    ]
    header.warnings += _cache_warnings(bench, sum(required.values()))
    patience_s = study.time_budget_s * _ANCHOR_SHARE / study.captures
    for capture in range(study.captures):
        if bench.must_stop(capture, FEWEST_CAPTURES):
            break
        bench.progress.phase(
            f"anchors, capture {capture + 1} of {study.captures}", study.rounds
        )
        bench.capture()
        header.numerics = _worst(header.numerics + check_arms(bench))
        until_s = min(bench.deadline_s, time.monotonic() + patience_s)
        measure(bench, Phase(_ANCHOR, capture, until_s))
    if recorder is not None:
        _record(bench, recorder)
    bench.release()
    if bench.is_cut:
        header.warnings.append(
            f"the time budget of {study.time_budget_s:g} s ended before the plan was "
            "done: fewer rounds or captures were made; raise --time-budget"
        )


def _worst(checks: list[NumericsCheck]) -> list[NumericsCheck]:
    """The check with the largest error of each arm."""
    worst: dict[str, NumericsCheck] = {}
    for check in checks:
        if check.arm not in worst or check.error > worst[check.arm].error:
            worst[check.arm] = check
    return list(worst.values())


def _cache_warnings(bench: Bench, pass_bytes: int) -> Iterator[str]:
    """What is wrong with replays that the L2 cache could hold for the next one."""
    l2_bytes = bench.writer.header.environment.device.l2_bytes
    shortest = min(bench.study.lengths)
    if shortest * pass_bytes < _L2_FACTOR * l2_bytes:
        yield (
            f"a replay of {shortest} passes needs {shortest * pass_bytes / 1e6:.0f} MB,"
            f" less than {_L2_FACTOR} times the L2 cache of {l2_bytes / 1e6:.0f} MB: "
            "weights may be read from the cache; raise --passes or the model's size"
        )


def _record(bench: Bench, recorder: Recorder) -> None:
    """Record fresh captures, and take anchors of the last one again.

    One capture's placement in memory can shift a region by a percent; shares of
    several say how much of a difference that is.
    """
    captures, header = bench.study.captures, bench.writer.header
    for capture in range(captures, 2 * captures):
        done = capture - captures + 1
        is_last = done == captures or bench.must_stop(done, FEWEST_CAPTURES)
        bench.capture(None if is_last else (bench.study.passes,))
        header.numerics = _worst(header.numerics + check_arms(bench))
        record(bench, recorder, capture)
        bench.writer.checkpoint()
        if is_last:
            break
    bench.progress.phase("anchors again, profiler detached", bench.study.rounds)
    measure(bench, Phase(_AFTER, capture, time.monotonic()))


@contextmanager
def _partial_on_failure(writer: RunWriter) -> Iterator[None]:
    """Leave a readable partial run that says why, whatever stops the study."""
    reason = "an unexpected error"  # a bug: it keeps its traceback
    try:
        yield
        reason = ""
    except KeyboardInterrupt:
        reason = "interrupted"
        raise
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        reason = out_of_memory(error)
        raise MeasurementError(reason) from error
    except LayerscopeError as error:
        reason = str(error)
        raise
    finally:
        if reason:
            _end(writer, reason)


def _end(writer: RunWriter, reason: str) -> None:
    """Write what there is; a folder without one sample tells nothing and goes."""
    # A full disk is reported by the error that is already on its way.
    with suppress(RecordError):
        writer.finish("partial", reason)
    with suppress(InputError, RecordError):  # then not even the header was written
        if load_run(writer.path).samples.is_empty():
            for name in (HEADER_FILE, SAMPLES_FILE, KERNELS_FILE):
                (writer.path / name).unlink()
    with suppress(OSError):  # not empty: samples are kept there
        writer.path.rmdir()
