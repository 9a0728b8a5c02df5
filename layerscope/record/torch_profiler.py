"""The torch.profiler recorder: CPU operators, and GPU kernels where CUPTI is missing.

On a CPU every outermost operator is a kernel, and the first recorded launch of a replay
gives the sequence of (region, name). On a GPU torch's records carry no graph node, so
the body runs once eagerly under the profiler, which gives that sequence. A launch must
then show the same sequence, or it is dropped.
"""

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from layerscope.errors import MeasurementError
from layerscope.graphs.replay import Replay
from layerscope.record.kineto import (
    REPLAY,
    Expected,
    Raw,
    by_order,
    by_place,
    eager_sequence,
    launch_groups,
    operators,
    placed,
)
from layerscope.record.recorder import Launch, Recorded
from layerscope.regions import Mark, observing


class RecordFunctionObserver:
    """Turns marks into `record_function` ranges, so that the profiler sees them."""

    def __init__(self) -> None:
        """No range is open."""
        self._open: list[record_function] = []

    def opened(self, mark: Mark) -> None:
        """Enter a range of the mark's label."""
        scope = record_function(mark.label)
        scope.__enter__()
        self._open.append(scope)

    def closed(self, mark: Mark) -> None:  # noqa: ARG002 (ranges are a stack)
        """Leave the range that was entered last."""
        self._open.pop().__exit__(None, None, None)


class TorchProfilerRecorder:
    """Records launches through torch.profiler, on CPUs and GPUs."""

    name = "torch.profiler"

    def __init__(self, device: torch.device) -> None:
        """Record on `device`."""
        os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # else each session fills stderr
        self._gpu = device.type == "cuda"
        self._expected: dict[Replay, list[Expected]] = {}

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Nothing stays attached between calls of `record`."""
        try:
            yield
        finally:
            self._expected.clear()  # replays hold the problem they run on

    def record(self, launches: Sequence[Launch]) -> list[Recorded]:
        """Launch all under one profiler session and map what it saw.

        Raises:
            MeasurementError: the profiler saw a different number of launches.
        """
        if not self._gpu:
            return self._record_on_cpu(launches)
        for launch in launches:
            if launch.replay not in self._expected:
                self._expected[launch.replay] = _eager_sequence(launch.replay)
        warm_up = [item for item in launches if item.round == launches[0].round]
        raws = _profiled(launches, warm_up)
        groups = launch_groups(raws)[len(warm_up) :]
        if len(groups) != len(launches):
            msg = (
                f"torch.profiler returned records of {len(groups)} launches where "
                f"{len(launches)} were made; install the cuda extra to use CUPTI"
            )
            raise MeasurementError(msg)
        return [
            by_order(launch, self._expected[launch.replay], group)
            for launch, group in zip(launches, groups, strict=True)
        ]

    def _record_on_cpu(self, launches: Sequence[Launch]) -> list[Recorded]:
        replays = operators(_profiled(launches, ()))
        recordings = []
        for index, launch in enumerate(launches):
            found = replays.get(index, [])
            # A launch that showed nothing is a fault, not what others must look like.
            expected = self._expected.get(launch.replay) or placed(found)
            self._expected[launch.replay] = expected
            recordings.append(by_place(launch, expected, found))
        return recordings


def _profiled(launches: Sequence[Launch], warm_up: Sequence[Launch]) -> list[Raw]:
    """Events of one profiler session in which every launch ran once.

    Args:
        launches: what to record.
        warm_up: GPU only: a whole round, launched first, for the first records of a
            session are at times lost or garbled.
    """
    gpu = bool(warm_up)
    with _session(gpu=gpu) as profiler:
        for launch in warm_up:
            launch.replay.launch()
        for index, launch in enumerate(launches):
            marks = nullcontext() if gpu else observing(RecordFunctionObserver())
            with record_function(Mark(REPLAY, str(index)).label), marks:
                launch.replay.launch()
        if gpu:
            torch.cuda.synchronize()
    return _raws(profiler)


@contextmanager
def _session(*, gpu: bool) -> Iterator[profile]:
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if gpu else [])]
    with warnings.catch_warnings():
        # Some versions warn that events of an earlier cycle are gone; there is none.
        warnings.filterwarnings("ignore", message="Warning: Profiler clears events")
        with profile(activities=activities) as profiler:
            yield profiler


def _raws(profiler: profile) -> list[Raw]:
    results: Any = profiler.profiler.kineto_results  # type: ignore[union-attr]
    return [_raw(event) for event in results.events()]


def _raw(event: Any) -> Raw:  # noqa: ANN401 (the profiler's own class has no stubs)
    on_gpu = event.device_type() != torch.profiler.DeviceType.CPU
    start_ns = event.start_ns()
    return Raw(
        event.name(),
        start_ns,
        start_ns + event.duration_ns(),
        on_gpu,
        event.device_resource_id() if on_gpu else event.start_thread_id(),
        event.correlation_id(),
        event.linked_correlation_id(),
        event.is_user_annotation(),
    )


def _eager_sequence(replay: Replay) -> list[Expected]:
    with _session(gpu=True) as profiler:
        with (
            record_function(Mark(REPLAY, "0").label),
            observing(RecordFunctionObserver()),
        ):
            replay.body(replay.passes)
        torch.cuda.synchronize()
    return eager_sequence(_raws(profiler))
