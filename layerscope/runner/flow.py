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
from layerscope.errors import LayerscopeError, MeasurementError, RecordError
from layerscope.graphs import device as devices
from layerscope.graphs.memory import check_memory, out_of_memory
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
    RegionBytes,
    Run,
    RunHeader,
    RunWriter,
)
from layerscope.runner.anchors import Phase, measure
from layerscope.runner.bench import Bench, open_bench, required_per_region
from layerscope.runner.numerics import check_arms
from layerscope.runner.recording import record
from layerscope.study import Study

_ANCHOR_SHARE: Final = 0.5
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
    with _partial_on_failure(writer), torch.no_grad():
        began_s = time.monotonic()
        problem = _make_problem(study, device, options)
        made_s = time.monotonic()
        bench = open_bench(study, problem, writer, options.progress)
        _measure(bench, recorder)
        header.seconds = {
            "weights": round(made_s - began_s, 1),
            "study": round(time.monotonic() - made_s, 1),
        }
        return writer.finish("complete")


def _refuse(study: Study, device: torch.device) -> None:
    """Collect every reason against measuring, before weights are made."""
    reasons = devices.refusals(device)
    facts = devices.facts(device)
    for arm in study.arms:
        backend = load(arm.backend)
        against = backend.refusals(study.spec, facts) + check_switches(arm, backend)
        reasons += [f"{arm.name} {reason}" for reason in against]
    if reasons:
        raise MeasurementError("; ".join(reasons))


def _make_problem(
    study: Study, device: torch.device, options: RunnerOptions
) -> Problem:
    options.progress.phase(f"making {study.passes} passes of weights and KV", 1)
    spec = study.spec
    weights = None
    if options.model_folder is not None:
        weights = load_layer(options.model_folder, spec.model, spec.layer)
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
    budget_s = study.time_budget_s * _ANCHOR_SHARE / study.captures
    for capture in range(study.captures):
        bench.progress.phase(
            f"anchors, capture {capture + 1} of {study.captures}", study.rounds
        )
        bench.capture()
        checks = check_arms(bench)
        if capture == 0:
            header.numerics = checks
        measure(bench, Phase(_ANCHOR, capture, time.monotonic() + budget_s))
    if recorder is not None:
        _record(bench, recorder)
    bench.release()


def _record(bench: Bench, recorder: Recorder) -> None:
    """Record fresh captures, as many as gave anchors, and take anchors again.

    One capture's placement in memory can shift a region by a percent; shares of
    several say how much of a difference that is.
    """
    captures = bench.study.captures
    last = 2 * captures - 1
    for capture in range(captures, last + 1):
        bench.capture(None if capture == last else (bench.study.passes,))
        check_arms(bench)
        record(bench, recorder, capture)
        bench.writer.checkpoint()
    bench.progress.phase("anchors again, profiler detached", bench.study.rounds)
    measure(bench, Phase(_AFTER, last, time.monotonic()))


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
    except torch.OutOfMemoryError as error:
        reason = out_of_memory()
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
        if writer.finish("partial", reason).samples.is_empty():
            for name in (HEADER_FILE, SAMPLES_FILE, KERNELS_FILE):
                (writer.path / name).unlink()
    with suppress(OSError):  # not empty: samples are kept there
        writer.path.rmdir()
