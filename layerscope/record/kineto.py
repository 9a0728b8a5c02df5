"""From torch.profiler's events to the nodes of a replay; no profiler needed.

These functions take events of any version of torch, live or read from a file.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from layerscope.graphs.replay import HEAD_PASS
from layerscope.record.recorder import Event, Launch, Place, Recorded, head_place
from layerscope.regions import Mark, Region

REPLAY: Final = "replay"
"""Kind of the mark around one launch."""

_CONTAINERS: Final = (
    "Torch-Compiled Region",
    "CompiledFunction",
    "## Call CompiledFxGraph",
    "TorchDynamo Cache Lookup",
    "Pregraph bytecode",
    "AOTDispatcher Runtime Wrapper Prologue",
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
            if REPLAY in open_marks:
                busy_until_ns = raw.end_ns
                found[int(open_marks[REPLAY])].append((_place(open_marks), raw))
    return found


def _is_container(raw: Raw) -> bool:
    return raw.annotation or raw.name.startswith(_CONTAINERS)


def _place(open_marks: dict[str, str]) -> Place:
    pass_index = int(open_marks.get("pass", HEAD_PASS))
    region = open_marks.get("region", Region.OTHER)
    return Place(pass_index, region, open_marks.get("role"))


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
    """Map the events of one launch on a GPU to the eager sequence, by order.

    One event too few shifts all that follow, so a launch of another length or with
    another name anywhere is a mismatch as a whole.
    """
    events = [
        Event(node, _kind(raw.name), raw.name, raw.lane, raw.start_ns, raw.end_ns)
        for node, raw in enumerate(group)
    ]
    names = [want.name for want in expected]
    is_same = [raw.name for raw in group] == names
    return _sequence(launch, expected, events, is_same=is_same)


def by_place(
    launch: Launch, expected: Sequence[Expected], found: Sequence[tuple[Place, Raw]]
) -> Recorded:
    """Map the operators of one launch on a CPU to the expected ones, by order.

    Their places are known, so an operator in another region is a mismatch too.
    """
    events = [
        Event(node, "operator", raw.name, 0, raw.start_ns, raw.end_ns)
        for node, (_, raw) in enumerate(found)
    ]
    is_same = placed(found) == list(expected)
    return _sequence(launch, expected, events, is_same=is_same)


def placed(found: Iterable[tuple[Place, Raw]]) -> list[Expected]:
    """The sequence that other launches of a replay must show, from those of one."""
    return [Expected(place, raw.name) for place, raw in found]


def _sequence(
    launch: Launch, expected: Sequence[Expected], events: list[Event], *, is_same: bool
) -> Recorded:
    places = {node: want.place for node, want in enumerate(expected)}
    if is_same:
        return Recorded(launch, tuple(events), places)
    reason = "other names, regions or order than expected"
    if len(events) != len(expected):
        reason = f"{len(events)} records where {len(expected)} were expected"
    return Recorded(launch, (), places, mismatch=reason)


def _kind(name: str) -> str:
    if name.startswith("Memcpy"):
        return "copy"
    return "fill" if name.startswith("Memset") else "kernel"
