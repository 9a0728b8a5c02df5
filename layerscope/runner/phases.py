"""The phases of a study: numerics and anchors by capture, recording, anchors again."""

import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

from layerscope.graphs.settling import settled
from layerscope.record.recorder import Recorder
from layerscope.run_header import NumericsCheck
from layerscope.runner.anchors import measure
from layerscope.runner.bench import Bench
from layerscope.runner.calibration import calibrate_experiments, calibrate_recorder
from layerscope.runner.editing import Needed, every, whole
from layerscope.runner.knockouts import CAPTURES, knock_out
from layerscope.runner.launches import Note
from layerscope.runner.numerics import check_arms
from layerscope.runner.recording import is_recorded, record
from layerscope.runner.rounds import Phase
from layerscope.runner.stamps import note_stamps
from layerscope.runner.switch_bits import check_bits
from layerscope.runner.trials import (
    check_variants,
    try_ahead,
    try_experiments,
    try_waiting_arms,
)
from layerscope.runner.waits import trusting_waits
from layerscope.study import FEWEST_CAPTURES

_ANCHOR_SHARE: Final = 0.25
"""Part of the time budget in which anchors may add to the planned rounds."""

_AFTER: Final = "after"
_ANCHOR: Final = "anchor"


def run_phases(bench: Bench, recorder: Recorder | None, note: Note) -> None:
    """Measure everything that the bench's study asks for, and let its replays go.

    What the recorder costs is not calibrated where the header has it already.

    Args:
        bench: whose study it is.
        recorder: None records nothing.
        note: of `watched_launches`.

    Raises:
        BackendError: an arm is wrong, or its kernels gave up waiting.
        MeasurementError: the device cannot measure an arm.
        RecordError: the run cannot be written.
    """
    # Arms that fail in the first capture may leave the study; its counts stay.
    study, header, workload = bench.study, bench.writer.header, bench.workload
    header.bytes = list(workload.region_bytes())
    l2_bytes = header.environment.device.l2_bytes
    header.warnings += workload.cache_warnings(min(study.lengths), l2_bytes)
    with bench.timed("trying experiments"):
        try_waiting_arms(bench)
        try_ahead(bench)
    patience_s = bench.budget_s * _ANCHOR_SHARE / study.captures
    for capture in range(study.captures):
        if bench.must_stop(capture, FEWEST_CAPTURES):
            break
        bench.progress.phase(
            f"anchors, capture {capture + 1} of {study.captures}", study.rounds
        )
        _fresh(bench, capture, None, every if capture < CAPTURES else whole)
        if capture == 0:
            _prepare_experiments(bench)
        with _settled(bench):
            _time(bench, capture, patience_s, note)
    if study.stamp_arms:
        stamped = trusting_waits(bench, "the reading of stamps")
        with bench.timed("stamps"), _settled(bench), stamped:
            note_stamps(bench)
    if recorder is not None:
        _record(bench, recorder, note)
    bench.release()
    if bench.is_cut:
        header.warnings.append(
            f"its {bench.budget_s:g} s of the time budget ended before the plan was "
            "done: fewer rounds or captures were made; raise --time-budget"
        )


def _time(bench: Bench, capture: int, patience_s: float, note: Note) -> None:
    """Time the anchors of a capture, and of the first ones the knock-outs."""
    until_s = min(bench.deadline_s, time.monotonic() + patience_s)
    place = f"capture {capture + 1}"
    with bench.timed("anchors"), trusting_waits(bench, f"the anchors of {place}"):
        measure(bench, Phase(_ANCHOR, capture, until_s))
        note(_ANCHOR)
    if capture < CAPTURES:
        knocked = trusting_waits(bench, f"the knock-outs of {place}")
        with bench.timed("knock-outs"), knocked:
            knock_out(bench, capture)


def _prepare_experiments(bench: Bench) -> None:
    """Find out what can be edited; the time of it is not the measuring's.

    What was captured before that is captured anew, for in all other captures edited
    graphs are made right after those that they are of.
    """
    began_s = time.monotonic()
    with bench.timed("trying experiments"):
        try_experiments(bench)
    with bench.timed("calibration"):
        calibrate_experiments(bench)
    if bench.experiments:
        _fresh(bench, 0, None, every)
    bench.deadline_s += time.monotonic() - began_s


def _fresh(
    bench: Bench,
    capture: int,
    lengths: Sequence[int] | None,
    needed: Needed,
) -> None:
    """Fresh captures, checked, with the edited graphs that are known to be right."""
    header = bench.writer.header
    with bench.timed("captures"):
        bench.capture(lengths, needed)
    with bench.timed("checks"):
        checks = check_arms(bench, is_brief=capture > 0)
        header.numerics = _worst(header.numerics + checks)
        if not header.bits:
            header.bits = check_bits(bench)
        check_variants(bench)


def _settled(bench: Bench) -> AbstractContextManager[None]:
    """A block in which all that was captured is launched as fast as it can be."""
    return settled(bench.player, bench.workload.feed.device)


def _worst(checks: list[NumericsCheck]) -> list[NumericsCheck]:
    """The check with the largest error of each arm."""
    worst: dict[str, NumericsCheck] = {}
    for check in checks:
        if check.arm not in worst or check.error > worst[check.arm].error:
            worst[check.arm] = check
    return list(worst.values())


def _record(bench: Bench, recorder: Recorder, note: Note) -> None:
    """Record fresh captures, and take anchors of the last one again.

    One capture's placement in memory can shift a region by a percent; shares of
    several say how much of a difference that is.
    """
    captures = bench.study.captures
    for capture in range(captures, 2 * captures):
        done = capture - captures + 1
        is_last = done == captures or bench.must_stop(done, FEWEST_CAPTURES)
        lengths = None if is_last else (bench.study.passes,)
        _fresh(bench, capture, lengths, partial(is_recorded, bench))
        recorded = trusting_waits(bench, f"recorded capture {done}")
        with bench.timed("recording"), _settled(bench), recorded:
            record(bench, recorder, capture)
            bench.writer.checkpoint()
        if is_last:
            break
    if not bench.writer.header.observer_costs:
        with bench.timed("calibration"):
            calibrate_recorder(bench, recorder)
    bench.progress.phase("anchors again, profiler detached", bench.study.rounds)
    again = trusting_waits(bench, "the anchors after it")
    with bench.timed("anchors again"), _settled(bench), again:
        measure(bench, Phase(_AFTER, capture, time.monotonic(), twins=False))
        note(_AFTER)
