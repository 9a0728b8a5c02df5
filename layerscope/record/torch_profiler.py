"""The torch.profiler recorder: CPU operators, and GPU kernels where CUPTI is missing.

On a CPU every outermost operator is a kernel. On a GPU torch's records carry no graph
node, so a replay is mapped by order: the body runs once eagerly under the profiler,
which gives the sequence of (region, kernel name); a replay must then show the same
names in the same order, or it is not trusted.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from layerscope.errors import MeasurementError
from layerscope.graphs.replay import HEAD_PASS, Replay
from layerscope.record.recorder import Event, Launch, Place, Recorded, head_place
from layerscope.regions import Mark, Region, observing

_REPLAY: Final = "replay"
_CONTAINERS: Final = (
    "Torch-Compiled Region",
    "CompiledFunction",
    "## Call CompiledFxGraph",
    "ProfilerStep",
    "PyTorch Profiler",
)
"""Names of events that wrap operators without being one."""

_RUNTIME_CALL: Final = re.compile(r"(cuda|cu|hip)[A-Z]")
"""How calls of the CUDA and HIP runtimes begin, and operators do not; the two count
their correlation ids apart."""


class Raw(NamedTuple):
    """One event of the profiler, as any version of torch or any file gives it."""

    name: str
    start_ns: int
    end_ns: int
    on_gpu: bool
    lane: int
    """Thread of a CPU event, stream of a GPU event."""

    correlation: int
    """CPU operator: its own id. GPU event: the id shared by one launch."""

    operator: int
    """GPU event: id of the CPU operator that launched it; 0 if none."""

    annotation: bool


@dataclass(frozen=True, slots=True)
class Expected:
    """What one node of a replay must look like, from the eager run."""

    place: Place
    name: str


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
        yield

    def record(self, launches: Sequence[Launch]) -> list[Recorded]:
        """Launch all under one profiler session and map what it saw.

        Raises:
            MeasurementError: the profiler saw a different number of launches.
        """
        if not self._gpu:
            return _record_on_cpu(launches)
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


def _profiled(launches: Sequence[Launch], warm_up: Sequence[Launch]) -> list[Raw]:
    """Events of one profiler session in which every launch ran once.

    Args:
        launches: what to record.
        warm_up: GPU only: a whole round, launched first, for the first records of a
            session are at times lost or garbled.
    """
    gpu = bool(warm_up)
    activities = [ProfilerActivity.CPU]
    if gpu:
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as profiler:
        for launch in warm_up:
            launch.replay.launch()
        for index, launch in enumerate(launches):
            marks = nullcontext() if gpu else observing(RecordFunctionObserver())
            with record_function(Mark(_REPLAY, str(index)).label), marks:
                launch.replay.launch()
        if gpu:
            torch.cuda.synchronize()
    return _raws(profiler)


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


def _record_on_cpu(launches: Sequence[Launch]) -> list[Recorded]:
    replays = operators(_profiled(launches, ()))
    recorded = []
    for index, launch in enumerate(launches):
        events, places = [], {}
        for node, (place, raw) in enumerate(replays.get(index, [])):
            places[node] = place
            events.append(
                Event(node, "operator", raw.name, 0, raw.start_ns, raw.end_ns)
            )
        recorded.append(Recorded(launch, tuple(events), places))
    return recorded


def operators(raws: Iterable[Raw]) -> dict[int, list[tuple[Place, Raw]]]:
    """Outermost operators of every marked replay, in order, with their place.

    Args:
        raws: events of one thread's session; marks are the labels of
            `regions.Mark`, replays those of kind ``replay``.

    Returns:
        Replay index -> operators. An operator outside every region is ``other``.
    """
    found: dict[int, list[tuple[Place, Raw]]] = defaultdict(list)
    scopes: list[tuple[Mark, int]] = []
    busy_until_ns = 0
    cpu = (raw for raw in raws if not raw.on_gpu)
    for raw in sorted(cpu, key=lambda raw: (raw.start_ns, -raw.end_ns)):
        scopes = [scope for scope in scopes if scope[1] > raw.start_ns]
        mark = Mark.from_label(raw.name)
        if mark is not None:
            scopes.append((mark, raw.end_ns))
        elif raw.start_ns >= busy_until_ns and not _is_container(raw):
            open_marks = {mark.kind: mark.name for mark, _ in scopes}
            if _REPLAY in open_marks:
                busy_until_ns = raw.end_ns
                found[int(open_marks[_REPLAY])].append((_place(open_marks), raw))
    return found


def _is_container(raw: Raw) -> bool:
    return raw.annotation or raw.name.startswith(_CONTAINERS)


def _place(open_marks: dict[str, str]) -> Place:
    pass_index = int(open_marks.get("pass", HEAD_PASS))
    return Place(pass_index, Region(open_marks.get("region", Region.OTHER)))


def launch_groups(raws: Iterable[Raw]) -> list[list[Raw]]:
    """GPU events grouped by launch, in launch order, each sorted by start."""
    groups: dict[int, list[Raw]] = defaultdict(list)
    for raw in raws:
        if raw.on_gpu and not raw.annotation:
            groups[raw.correlation].append(raw)
    ordered = [
        sorted(group, key=lambda raw: (raw.start_ns, raw.end_ns))
        for group in groups.values()
    ]
    return sorted(ordered, key=lambda group: group[0].start_ns)


def _eager_sequence(replay: Replay) -> list[Expected]:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
        with (
            record_function(Mark(_REPLAY, "0").label),
            observing(RecordFunctionObserver()),
        ):
            replay.body(replay.passes)
        torch.cuda.synchronize()
    return eager_sequence(_raws(profiler))


def eager_sequence(raws: Sequence[Raw]) -> list[Expected]:
    """Kernels of an eager run in launch order, each placed by who launched it.

    A GPU event shares its correlation id with the runtime call that launched it, and
    names the CPU operator around that call; either lies inside the ranges of its pass
    and region. What neither is known of belongs to the head.
    """
    marks = [(Mark.from_label(raw.name), raw) for raw in raws if not raw.on_gpu]
    ranges = [(mark, raw) for mark, raw in marks if mark is not None]
    plain = [raw for mark, raw in marks if mark is None]
    calls = {raw.correlation: raw for raw in plain if _RUNTIME_CALL.match(raw.name)}
    by_id = {raw.correlation: raw for raw in plain if not _RUNTIME_CALL.match(raw.name)}
    expected = []
    gpu = (raw for raw in raws if raw.on_gpu and not raw.annotation)
    for raw in sorted(gpu, key=lambda raw: raw.start_ns):
        launcher = calls.get(raw.correlation) or by_id.get(raw.operator)
        open_marks = {} if launcher is None else _enclosing(launcher, ranges)
        place = _place(open_marks) if open_marks else head_place()
        expected.append(Expected(place, raw.name))
    return expected


def _enclosing(launcher: Raw, ranges: list[tuple[Mark, Raw]]) -> dict[str, str]:
    return {
        mark.kind: mark.name
        for mark, raw in ranges
        if raw.start_ns <= launcher.start_ns < raw.end_ns
    }


def by_order(
    launch: Launch, expected: Sequence[Expected], group: Sequence[Raw]
) -> Recorded:
    """Map the events of one launch to the eager sequence, by order.

    An event whose name is not the expected one, and any event past the sequence,
    counts as unmapped; a sequence that is not filled leaves nodes without events.
    """
    events, unmapped = [], max(0, len(group) - len(expected))
    for node, (want, raw) in enumerate(zip(expected, group, strict=False)):
        if raw.name != want.name:
            unmapped += 1
            continue
        events.append(
            Event(node, _kind(raw.name), raw.name, raw.lane, raw.start_ns, raw.end_ns)
        )
    places = {node: want.place for node, want in enumerate(expected)}
    return Recorded(launch, tuple(events), places, (), unmapped)


def _kind(name: str) -> str:
    if name.startswith("Memcpy"):
        return "copy"
    return "fill" if name.startswith("Memset") else "kernel"
