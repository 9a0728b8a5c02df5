"""A run that was made of a trace: where the time of its layers goes, as observed.

Nothing was repeated to learn how much it varies, and nothing ran without the profiler:
there is no anchor, no interval and no verdict, and nothing here looks like one.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import polars as pl

from layerscope.experiment import CAPTURED
from layerscope.passes import GRAPH_PASS_KEYS
from layerscope.report.document import Cell, Column, Fact, Kind, Report, Table
from layerscope.report.measures import Measures
from layerscope.report.table_sets import counting_copies, in_one_unit
from layerscope.report.tables import region_table_of
from layerscope.report.work import title, work_facts
from layerscope.run import Run
from layerscope.run_header import RunHeader
from layerscope.schema import INT, TEXT, UNASSIGNED
from layerscope.trace_spec import UNTRUSTED, TraceSpec
from layerscope.units import (
    format_bytes,
    format_count,
    format_ns,
    format_percent,
    format_things,
)

_ARMS: Final = (
    Column("arm", "arm", Kind.TEXT),
    Column("steps", "steps", Kind.COUNT),
    Column("layers", "layers a step", Kind.COUNT),
    Column("passes", "in shares", Kind.COUNT),
    Column("kernels", "kernels", Kind.COUNT),
    Column("pass_mean_ns", "mean", Kind.TIME),
    Column("pass_median_ns", "median", Kind.TIME),
    Column("gap_mean_ns", "gap", Kind.TIME),
    Column("duration_mean_ns", "sum", Kind.TIME),
    Column("hidden_mean_ns", "hidden", Kind.TIME),
)
_VARIANTS: Final = (
    Column("variant", "variant", Kind.TEXT),
    Column("passes", "layers", Kind.COUNT),
    Column("first", "first in", Kind.COUNT),
    *_ARMS[4:],
)
_PARTS: Final = ("gap", "duration", "hidden")
_FIGURES: Final = tuple(column.key for column in _ARMS[4:])

_MUCH: Final = 0.05
"""Part of kernel time without a region from which it is a warning."""

_NOTES: Final = (
    (
        "observed: one recording under a profiler; without an anchor and repeated "
        "captures nothing has an interval or a verdict"
    ),
    (
        "shares are where the time of a layer goes, not what removing a region would "
        "save; mean shares add up to the mean, gaps, sums and hidden times to their "
        "totals, medians to nothing"
    ),
    (
        "the first and the last layer of a step, and what runs outside of layers, are "
        "in no share: they stand beside something that is no layer"
    ),
)


def observed_report(run: Run, measured: Measures) -> Report:
    """The report of a run that was made of a trace.

    Args:
        run: one with a `TraceSpec`.
        measured: its measures.
    """
    passes = _passes(measured.shares)
    return Report(
        title=f"{title(run.header.study.spec)}, observed",
        headlines=(
            *untrusted(run.header.warnings),
            *_headlines(measured, passes),
        ),
        facts=tuple(_facts(run)),
        tables=tuple(
            counting_copies(_tables(run, measured, passes), run.kernels["kind"])
        ),
        notes=_NOTES,
        warnings=tuple(_warnings(run, passes)),
    )


def untrusted(warnings: Sequence[str], of: str = "") -> Iterator[Fact]:
    """What of a trace cannot be trusted, which is said before any number.

    Args:
        warnings: of a header.
        of: whose they are; empty where there is only one.
    """
    label = UNTRUSTED.removesuffix(": ")
    for warning in warnings:
        if warning.startswith(UNTRUSTED):
            text = warning.removeprefix(UNTRUSTED)
            yield Fact(label, f"{of}: {text}" if of else text)


def other_warnings(warnings: Sequence[str]) -> Iterator[str]:
    """Those that `untrusted` does not tell."""
    yield from (each for each in warnings if not each.startswith(UNTRUSTED))


def device_text(header: RunHeader) -> str:
    """What a trace tells of its device."""
    device = header.environment.device
    unit = "CUs" if device.type == "hip" else "SMs"
    told = [
        device.name,
        device.architecture,
        f"{device.processors} {unit}" if device.processors else "",
        format_bytes(device.memory_bytes) if device.memory_bytes else "",
    ]
    return ", ".join(filter(None, told)) or "not told"


def _passes(shares: pl.DataFrame) -> pl.DataFrame:
    """Every pass in shares: its keys, arm, and what its regions add up to."""
    sums = ("kernels", "gap_ns", "duration_ns", "hidden_ns", "share_ns")
    captured = shares.filter(pl.col("experiment") == CAPTURED)
    return captured.group_by("arm", *GRAPH_PASS_KEYS).agg(pl.col(sums).sum())


def _figures(passes: pl.DataFrame) -> dict[str, float]:
    """The figures of `_FIGURES`, over all of `passes`."""
    share = pl.col("share_ns")
    means = (pl.col(f"{n}_ns").mean().alias(f"{n}_mean_ns") for n in _PARTS)
    return passes.select(
        pl.col("kernels").median(),
        share.mean().alias("pass_mean_ns"),
        share.median().alias("pass_median_ns"),
        *means,
    ).row(0, named=True)


def _headlines(measured: Measures, passes: pl.DataFrame) -> Iterator[Fact]:
    for arm in measured.arms:
        own = passes.filter(pl.col("arm") == arm)
        if own.is_empty():
            continue
        found = _figures(own)
        mean_ns, gap_ns = found["pass_mean_ns"], found["gap_mean_ns"]
        gaps = format_percent(gap_ns / mean_ns if mean_ns else 0.0)
        told = (
            f"{format_ns(mean_ns)} a layer (mean of {format_count(own.height)}): "
            f"gaps {gaps}, hidden behind other kernels "
            f"{format_ns(found['hidden_mean_ns'])}"
        )
        yield Fact(f"{arm}, observed", told)


def _facts(run: Run) -> Iterator[Fact]:
    yield Fact("device", device_text(run.header))
    yield from work_facts(run.header)
    kinds = dict(run.kernels.group_by("kind").agg(pl.len()).iter_rows())
    plurals = {"copy": "copies"}
    counts = [
        f"{format_count(kinds[kind])} {plurals[kind]}"
        if kind in plurals and kinds[kind] > 1
        else format_things(kinds[kind], kind)
        for kind in ("kernel", "copy", "fill")
        if kind in kinds
    ]
    yield Fact("records", ", ".join(counts) or "none")


def _tables(run: Run, measured: Measures, passes: pl.DataFrame) -> Iterator[Table]:
    spec = run.header.study.spec
    assert isinstance(spec, TraceSpec)  # noqa: S101 (whoever calls has looked)
    yield Table(
        title="a layer of each arm, observed",
        columns=_ARMS,
        rows=tuple(_arm_row(spec, arm, passes) for arm in measured.arms),
    )
    layers = (
        table
        for arm in measured.arms
        if arm in measured.profiled_ns
        for table in (
            region_table_of(measured, arm, f"regions of {arm}, a layer, observed"),
            *_variants(spec, arm, passes),
        )
    )
    yield from in_one_unit(layers)


def _arm_row(spec: TraceSpec, arm: str, passes: pl.DataFrame) -> tuple[Cell, ...]:
    steps = spec.steps_of(arm)
    own = passes.filter(pl.col("arm") == arm)
    found = _figures(own)
    return (arm, steps.steps, steps.layers, own.height, *map(found.get, _FIGURES))


def _variants(spec: TraceSpec, arm: str, passes: pl.DataFrame) -> Iterator[Table]:
    """The layers of `arm` by variant; none where those in shares are of one."""
    found = [
        {"replay": step, "pass_index": int(layer), "variant": variant}
        for listed, steps in spec.steps_of(arm).layer_variants.items()
        for step in steps
        for layer, _, variant in (each.partition(":") for each in listed.split())
    ]
    variants = pl.DataFrame(
        found, schema={"replay": INT, "pass_index": INT, "variant": TEXT}
    )
    own = passes.filter(pl.col("arm") == arm)
    joined = own.join(variants, on=["replay", "pass_index"]).sort("variant")
    if joined["variant"].n_unique() <= 1:
        return
    rows: list[tuple[Cell, ...]] = []
    for (variant,), layers in joined.group_by("variant", maintain_order=True):
        figures = _figures(layers)
        first = layers["pass_index"].min()
        assert isinstance(first, int)  # noqa: S101 (a variant has passes)
        rows.append((str(variant), layers.height, first, *map(figures.get, _FIGURES)))
    yield Table(f"layers of {arm} by variant, observed", _VARIANTS, tuple(rows))


def _warnings(run: Run, passes: pl.DataFrame) -> Iterator[str]:
    header = run.header
    if header.status == "partial":
        yield f"partial run: {header.status_reason}"
    for arm in header.study.arms:
        own = passes.filter(pl.col("arm") == arm.name)
        if own.is_empty():
            yield f"{arm.name}: no layer is between two others, so none is in shares"
    yield from _unassigned(run)
    yield from other_warnings(header.warnings)


def _unassigned(run: Run) -> Iterator[str]:
    """How much of the time in layers has no region, where that is more than a bit."""
    inside = run.kernels.filter(pl.col("pass_index") >= 0)
    duration = pl.col("duration_ns")
    for arm, whole_ns, without_ns in (
        inside.group_by("arm", maintain_order=True)
        .agg(duration.sum(), without=duration.filter(region=UNASSIGNED).sum())
        .iter_rows()
    ):
        if without_ns > _MUCH * whole_ns:
            part = format_percent(without_ns / whole_ns)
            yield f"{arm}: {part} of the kernel time in layers has no region"
