"""The header of a report: on what, how, and how well the layer was measured."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import polars as pl

from layerscope.analyze.statistics import ANCHOR, MIN_CAPTURES
from layerscope.experiment import CAPTURED
from layerscope.report.clocks import clock_facts
from layerscope.report.document import Fact
from layerscope.report.launches import launch_facts
from layerscope.report.measures import Measures
from layerscope.report.work import error_name, noun, work_facts
from layerscope.run import Run
from layerscope.run_header import RunHeader
from layerscope.units import (
    format_bytes,
    format_count,
    format_estimate,
    format_ns,
    format_number,
    format_percent,
    format_things,
)

_SOFTWARE: Final = ("layerscope", "torch", "triton")
_SHORT_S: Final = 0.05
"""Parts of a study that took less are not told: nothing was to be done in them."""

_GPU_SOFTWARE: Final = ("cupti-python", "nvidia-cuda-cupti")  # the observer itself


def facts(
    run: Run, measured: Measures, *, with_machine: bool = True
) -> tuple[Fact, ...]:
    """Every line of the header, in reading order.

    Args:
        run: what is reported.
        measured: its measures.
        with_machine: whether the machine is told, which parts of a report share.
    """
    return (
        *(_machine(run.header) if with_machine else ()),
        *work_facts(run.header),
        *_protocol(run, measured),
        *_quality(run, measured),
    )


def _machine(header: RunHeader) -> Iterator[Fact]:
    device = header.environment.device
    if device.type == "cpu":
        threads = format_things(device.processors, "thread")
        yield Fact("device", f"{device.name}, {threads}, CPU")
    else:
        size = format_bytes(device.memory_bytes)
        count = f"{device.processors} {'CUs' if device.type == 'hip' else 'SMs'}"
        yield Fact(
            "device",
            f"{device.name}, {device.architecture}, {count}, {size}",
        )
        runtime = "ROCm" if device.type == "hip" else "CUDA"
        yield Fact("driver", f"{device.driver}, {runtime} {device.runtime}")
    packages = header.environment.packages
    told = _SOFTWARE if device.type == "cpu" else (*_SOFTWARE, *_GPU_SOFTWARE)
    named = [f"{name} {packages[name]}" for name in told if name in packages]
    yield Fact("software", ", ".join(named) or "unknown")


def _protocol(run: Run, measured: Measures) -> Iterator[Fact]:
    header = run.header
    lengths = ", ".join(str(length) for length in header.study.lengths)
    if header.environment.device.type == "cpu":
        yield Fact(
            "replays",
            f"of {lengths} passes; a CPU has no graphs: arms run as they are, and "
            "operators are the kernels",
        )
    else:
        yield Fact("replays", f"of {lengths} passes in one graph; a pass is the slope")
    yield Fact("samples", _samples(run, measured))
    yield Fact("recorder", _recorder(run))
    checks = [
        f"{check.arm} {check.error:.2g} of {check.bound:.2g}"
        for check in header.numerics
    ]
    if checks:
        name = error_name(header.study.spec)
        yield Fact("numerics", f"{name} and bound: {', '.join(checks)}")
    builds = [
        f"{build.arm} {format_number(build.seconds, 1)} s, "
        f"{format_bytes(build.device_bytes)}"
        for build in header.builds
    ]
    if builds:
        yield Fact("built", "; ".join(builds))
    if header.seconds:
        long = {name: s for name, s in header.phases.items() if s >= _SHORT_S}
        phases = f" ({_seconds(long)})" if long else ""
        yield Fact("took", f"{_seconds(header.seconds)}{phases}")
    if header.host_memory_bytes > 0:
        peak = format_bytes(header.host_memory_bytes)
        yield Fact("host memory", f"{peak} at the peak of the process")


def _seconds(spent: Mapping[str, float]) -> str:
    """What took how long, in the order it was noted in; the study comes last."""
    return ", ".join(f"{name} {format_number(s, 1)} s" for name, s in spent.items())


def _recorder(run: Run) -> str:
    if run.kernels.is_empty():
        return run.header.recorder or "none"
    records = format_count(run.kernels.height)
    captures = run.kernels["capture"].n_unique()
    counts = f"{records} records of {captures} captures"
    return f"{run.header.recorder}; {counts}, all mapped to regions"


def _samples(run: Run, measured: Measures) -> str:
    anchors = run.samples.filter(
        pl.col("phase") == ANCHOR, pl.col("experiment") == CAPTURED
    )
    if anchors.is_empty():
        return "none"
    passes = dict(anchors.group_by("arm").agg(pl.col("passes").sum()).iter_rows())
    parts = [
        f"{arm} {format_count(passes[arm])} passes in "
        f"{format_things(estimate.samples, 'round')} "
        f"(effective {format_number(estimate.effective, 0)} within captures)"
        for arm, estimate in measured.anchors.items()
        if arm in passes
    ]
    captures = anchors["capture"].n_unique()
    return f"{', '.join(parts)}; {format_things(captures, 'capture')} an arm"


def _quality(run: Run, measured: Measures) -> Iterator[Fact]:
    layer_ns = measured.anchors[measured.base].value
    yield Fact("noise floor", floor_text(measured.floor_ns, layer_ns, run.header))
    yield from _linearity(measured, layer_ns)
    effects = [_observer_effect(measured, arm) for arm in measured.observer_effects]
    if effects:
        yield Fact("observer effect", "; ".join(effects))
    if measured.shifts:
        yield Fact("anchors again", _shift(measured))
    yield from launch_facts(run.header)
    yield from clock_facts(run.samples)
    drops = [f"{d.replays} of {d.arm}: {d.reason}" for d in run.header.drops]
    yield Fact("dropped replays", "; ".join(drops) or "none")


def floor_text(floor_ns: float, base_ns: float, header: RunHeader) -> str:
    """The noise floor, beside what it is a part of.

    Args:
        floor_ns: infinite where it is not known.
        base_ns: the time of a pass that is compared with.
        header: of the run.
    """
    again = header.study.all_arms[-1].name
    if not math.isfinite(floor_ns):
        return f"unknown: needs {MIN_CAPTURES} captures of {again}"
    share = f"{format_percent(floor_ns / base_ns)} of the {noun(header.study.spec)}"
    return f"{format_ns(floor_ns)} ({share}), from {again}"


def _linearity(measured: Measures, layer_ns: float) -> Iterator[Fact]:
    rows = measured.linearity.rows(named=True)
    if not rows:
        return
    worst = max(rows, key=lambda row: abs(row["deviation_ns"]))
    yield Fact(
        "linearity",
        f"middle length off the line by {_change(worst['deviation_ns'], layer_ns)} "
        f"a pass at most ({worst['arm']}), {_beside_floor(worst, measured.floor_ns)}",
    )


def _beside_floor(row: dict[str, Any], floor_ns: float) -> str:
    if not math.isfinite(floor_ns):
        return "noise floor unknown"
    side = "within" if abs(row["deviation_ns"]) <= floor_ns else "beyond"
    return f"{side} the noise floor"


def _observer_effect(measured: Measures, arm: str) -> str:
    added = measured.observer_effects[arm]
    relative = added.value / measured.anchors[arm].value
    change = format_estimate(added.value, added.low, added.high, relative)
    if added.low <= 0 <= added.high:
        return f"{arm} {change}, not told from zero"
    a_kernel = format_ns(added.value / measured.kernels[arm], signed=True)
    return f"{arm} {change}, {a_kernel} a kernel"


def _shift(measured: Measures) -> str:
    """The shift that is furthest beyond, or least within, what captures differ by."""
    arm, shift = max(measured.shifts.items(), key=lambda item: item[1].excess_ns)
    if not math.isfinite(shift.bound_ns):
        return "unknown: one capture"
    change = _change(shift.value_ns, measured.anchors[arm].value)
    side = "beyond" if shift.excess_ns > 0 else "within"
    return f"{change} after profiling ({arm}), {side} the 95 % spread of captures"


def _change(change_ns: float, base_ns: float) -> str:
    share = format_percent(change_ns / base_ns, signed=True)
    return f"{format_ns(change_ns, signed=True)} ({share})"
