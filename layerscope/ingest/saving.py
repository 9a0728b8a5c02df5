"""Traces as runs: every step found is a replay, every layer of it a pass.

Such a run is made of what another tool saw, so it has no samples, and no arm is there
twice. What comes before the first layer of a step and after its last belongs to no
pass. A step without layers is one pass. Kernels outside of steps are left out, and the
header says how many.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import polars as pl

from layerscope import __version__
from layerscope.analyze.swept_trace import SweptTrace
from layerscope.environment import DeviceFacts, Environment
from layerscope.errors import InputError
from layerscope.ingest.formats import Format
from layerscope.ingest.step_rows import StepRows, step_rows
from layerscope.run import Run, RunWriter
from layerscope.run_header import RunHeader
from layerscope.schema import KERNELS, SAMPLES, empty
from layerscope.study import Arm, Study
from layerscope.trace import Trace, TraceDevice, TraceNote
from layerscope.trace_spec import TraceSpec, TraceSteps
from layerscope.units import format_ns, format_things

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_FEWEST: Final = 3
"""Layers of a step of which one stands between two others."""

_HIP: Final = frozenset({Format.ROCPROF_CSV, Format.ROCPROF_JSON, Format.ROCPD})


def run_of(
    traces: Sequence[SweptTrace], path: Path | str, command: Sequence[str] = ()
) -> Run:
    """Traces as a run in memory.

    An arm stands for the steps of one kind on one device, and is called by that kind:
    ``decode``, ``prefill``, ``mixed``, or ``step`` where it is not known. Several
    devices, and several traces, are told apart as switches are: ``decode:rank=3``.

    Args:
        traces: at least one; several are ranks of one job.
        path: what messages call the run.
        command: the command line, for the record.

    Raises:
        InputError: no kernel is in the traces.
    """
    found = [
        step_rows(each.kernels, switches, each.trust.why_no_gaps, each.cut)
        for each, switches in zip(traces, _switches(traces), strict=True)
        if each.kernels.height
    ]
    if not found:
        names = ", ".join(each.trace.label for each in traces)
        msg = f"{names}: no kernel is in it, so there is nothing to show"
        raise InputError(msg)
    steps = tuple(each for rows in found for each in rows.steps)
    header = RunHeader(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        command=list(command),
        study=_study(traces, steps),
        environment=_environment(traces),
        status="complete",
        status_reason="",
        recorder=traces[0].trace.source.format,
        warnings=list(_warnings(traces, found)),
    )
    kernels = pl.concat([empty(KERNELS), *(rows.kernels for rows in found)])
    return Run(header, empty(SAMPLES), kernels, Path(path))


def save(traces: Sequence[SweptTrace], path: Path, command: Sequence[str] = ()) -> Run:
    """Write traces as a run to the folder `path`, which must be new or empty.

    Args:
        traces: as for `run_of`.
        path: the folder.
        command: the command line, for the record.

    Raises:
        InputError: no step has three layers, so no pass stands between two others, or
            the folder cannot be used.
        RecordError: the run cannot be written.
    """
    made = run_of(traces, path, command)
    if not (made.kernels["pass_index"] >= _FEWEST - 1).any():
        names = ", ".join(each.trace.label for each in traces)
        msg = (
            f"{names}: no step has three layers that were found, and a run shows those "
            "between two others; layerscope analyze shows what there is"
        )
        raise InputError(msg)
    writer = RunWriter(path, made.header)
    writer.add_kernels(made.kernels)
    return writer.finish("complete")


def _switches(traces: Sequence[SweptTrace]) -> list[dict[str, str]]:
    """What tells the arms of each trace from those of others."""
    if len(traces) == 1:
        return [{}]
    ranks = [each.trace.rank for each in traces]
    if None in ranks or len(set(ranks)) < len(ranks):
        return [{"trace": str(number)} for number in range(len(traces))]
    return [{"rank": str(rank)} for rank in ranks]


def _study(traces: Sequence[SweptTrace], steps: tuple[TraceSteps, ...]) -> Study:
    sources = [each.trace.source for each in traces]
    told = dict.fromkeys(source.written_by for source in sources if source.written_by)
    spec = TraceSpec(
        files=tuple(each.trace.label for each in traces),
        format=", ".join(dict.fromkeys(source.format for source in sources)),
        written_by=", ".join(told),
        recorded=_recorded(traces[0].trace),
        steps=steps,
        assigned_ns=_assigned(traces),
    )
    return Study(
        spec=spec,
        arms=tuple(Arm(backend=each.arm) for each in steps),
        samples=0,
        lengths=(),
        captures=1,
        steps=max(each.steps for each in steps),
        time_budget_s=0.0,
    )


def _recorded(trace: Trace) -> str:
    """When a trace begins, in words; empty where it is not known."""
    if trace.origin_ns is None:
        return ""
    try:
        begun = _EPOCH + timedelta(microseconds=trace.origin_ns // 1000)
    except OverflowError:
        return ""
    return begun.isoformat(timespec="seconds")


def _assigned(traces: Sequence[SweptTrace]) -> dict[str, int]:
    """Kernel time by what regions are from, the largest first."""
    counts: Counter[str] = Counter()
    what = pl.col("assigned_by").str.split(" ").list.first()
    for each in traces:
        sums = each.kernels.group_by(what).agg(pl.col("duration_ns").sum())
        counts.update(dict(sums.sort("assigned_by").iter_rows()))
    return dict(counts.most_common())


def _environment(traces: Sequence[SweptTrace]) -> Environment:
    return Environment(
        device=_device(traces),
        platform="",
        python="",
        packages={"layerscope": __version__},
    )


def _device(traces: Sequence[SweptTrace]) -> DeviceFacts:
    """What the traces say of the devices that ran kernels, which should be alike."""
    found: list[TraceDevice] = []
    for each in traces:
        used = set(each.kernels["device"].unique())
        known = each.trace.devices
        # a tool may number devices otherwise than it describes them
        found += [device for device in known if device.device in used] or known
    names = ", ".join(dict.fromkeys(device.name for device in found if device.name))
    first = found[0] if found else TraceDevice(device=0)
    return DeviceFacts(
        type=_runtime(traces[0].trace, first),
        name=names,
        index=first.device,
        architecture=first.architecture,
        processors=first.processors,
        memory_bytes=first.memory_bytes,
    )


def _runtime(trace: Trace, device: TraceDevice) -> str:
    """``cuda`` or ``hip``; empty where nothing tells."""
    calls = set(trace.calls["name"].str.slice(0, 3).unique())
    if device.architecture.startswith("gfx") or trace.source.format in _HIP:
        return "hip"
    if device.architecture.startswith("sm_") or trace.source.format == Format.NSYS:
        return "cuda"
    return "hip" if "hip" in calls else "cuda" if {"cud", "cuL"} & calls else ""


def _warnings(traces: Sequence[SweptTrace], found: Sequence[StepRows]) -> Iterator[str]:
    """What is known against the traces, and what the run leaves out; a line each."""
    for each in traces:
        where = "" if len(traces) == 1 else f", in {each.trace.label}"
        yield from (f"{note_text(note)}{where}" for note in each.trust.notes)
        if each.kernels.height and each.kernels["step"].is_null().all():
            yield f"no steps were found{where}: the whole device is taken as one"
    outside = sum(rows.outside for rows in found)
    if outside:
        told = format_ns(sum(rows.outside_ns for rows in found))
        kernels = format_things(outside, "kernel")
        yield f"{kernels} outside of steps ({told} in sum) are left out of the run"
    for rows in found:
        for steps in rows.steps:
            if not steps.layers:
                yield f"no layers were found in {steps.arm}: a pass is a whole step"
        if rows.renumbered:
            yield "streams of several contexts have equal numbers: they have new ones"


def note_text(note: TraceNote) -> str:
    """A note in one line, such as ``dropped: 3 kernels of ...``."""
    count = f"{note.count:,} " if note.count > 1 else ""
    return f"{note.kind}: {count}{note.what}"
