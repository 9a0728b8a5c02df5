"""Limits of the machine, and how near to them regions and kernels of a run come."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import polars as pl

from layerscope.analyze.read_curve import FEWEST_READS, cold_read_ns
from layerscope.analyze.role_reads import RoleRead, RoleReads
from layerscope.environment import DeviceFacts
from layerscope.layers.draft_spec import DraftSpec
from layerscope.layers.spec import LayerSpec
from layerscope.report.document import (
    Cell,
    Column,
    Fact,
    Interval,
    Kind,
    Report,
    Table,
)
from layerscope.report.work import describe_step, title
from layerscope.run_header import Bound, ReadCost, RegionBytes, RunHeader
from layerscope.study import AA_SUFFIX
from layerscope.units import format_bytes, format_things, tb_per_s

_BOUNDS: Final = (
    Column("bound", "", Kind.TEXT),
    Column("kernels", "kernels", Kind.COUNT),
    Column("pass_ns", "a pass", Kind.INTERVAL),
    Column("ratio", "/ one read", Kind.RATIO),
    Column("speed_tb_per_s", "TB/s", Kind.RATIO),
)
_READS: Final = (
    Column("bytes", "bytes", Kind.SIZE),
    Column("duration_ns", "time", Kind.TIME),
    Column("speed_tb_per_s", "TB/s", Kind.RATIO),
)
_SPEEDS: Final = (
    Column("arm", "arm", Kind.TEXT),
    Column("region", "region", Kind.REGION),
    Column("kernels", "kernels", Kind.COUNT),
    Column("required_bytes", "required", Kind.SIZE),
    Column("share_mean_ns", "mean share", Kind.TIME),
    Column("speed_tb_per_s", "TB/s", Kind.RATIO),
    Column("cold_read_ns", "one cold read", Kind.TIME),
    Column("ratio", "share / read", Kind.RATIO),
    Column("kernel_speed_tb_per_s", "TB/s of its one kernel", Kind.RATIO),
)
_BY_ROLE: Final = (
    Column("role", "role", Kind.TEXT),
    Column("kernels", "kernels", Kind.COUNT),
    Column("required_bytes", "required", Kind.SIZE),
    Column("duration_ns", "duration", Kind.TIME),
    Column("time_ns", "with gaps", Kind.TIME),
    Column("speed_tb_per_s", "TB/s", Kind.RATIO),
    Column("cold_read_ns", "one cold read", Kind.TIME),
    Column("ratio", "with gaps / read", Kind.RATIO),
)
_HOW: Final = (
    "kernels that only read what they must and wait for what they need, cold; the "
    "fastest of several grids, with 95 % interval"
)
_EARLY: Final = (
    "stock PDL: each kernel waits at its entry and triggers at its end; legal early "
    "start: each triggers first and reads before it waits, but for the first that "
    "reads the chosen experts; all early: that one too"
)
_ONE_READ: Final = "one read"


@dataclass(frozen=True, slots=True)
class Limits:
    """What was measured for one layer."""

    spec: LayerSpec
    distinct_experts: int | None
    """Of a pass; None if dense."""

    bounds: tuple[Bound, ...]


def limits_report(
    device: DeviceFacts, measured: Sequence[Limits], reads: Sequence[ReadCost]
) -> Report:
    """A table of bounds for each layer, and the curve of cold reads.

    Args:
        device: what they were measured on.
        measured: at least one; they differ in their ranks alone.
        reads: by bytes, ascending.
    """
    spec = measured[0].spec
    return Report(
        title=f"limits of {title(spec)}",
        facts=(
            Fact("device", f"{device.name}, {device.architecture}"),
            Fact("step", describe_step(spec)),
            Fact(
                "types",
                f"{spec.dtype} activations, {spec.weight_dtype} weights",
            ),
        ),
        tables=(
            *(limits_table(_heading(each), each.bounds) for each in measured),
            reads_table(reads),
        ),
        notes=(_HOW, _EARLY),
    )


def _heading(limits: Limits) -> str:
    spec, (first, *_) = limits.spec, limits.bounds
    whole = "the whole layer" if spec.tp == 1 else f"slice of one rank of {spec.tp}"
    experts = limits.distinct_experts
    chosen = "" if experts is None else f", {format_things(experts, 'expert')}"
    return f"{whole}: a pass of {format_bytes(first.bytes)}{chosen}"


def limits_table(heading: str, bounds: Sequence[Bound]) -> Table:
    """The bounds of one chain, each beside one kernel that reads the same bytes."""
    one = next((bound.pass_ns for bound in bounds if bound.name == _ONE_READ), None)
    return Table(
        title=heading,
        columns=_BOUNDS,
        rows=tuple(
            (
                bound.name,
                bound.kernels,
                Interval(bound.pass_ns, bound.low_ns, bound.high_ns),
                bound.pass_ns / one if one else None,
                tb_per_s(bound.bytes, bound.pass_ns),
            )
            for bound in bounds
        ),
    )


def reads_table(reads: Sequence[ReadCost]) -> Table:
    """The time of one kernel that reads cold memory, by bytes."""
    return Table(
        title="cold reads by one kernel, its launch included",
        columns=_READS,
        rows=tuple(
            (read.bytes, read.duration_ns, tb_per_s(read.bytes, read.duration_ns))
            for read in reads
        ),
    )


def speeds_table(header: RunHeader, regions: pl.DataFrame) -> Iterator[Table]:
    """How fast every region of every arm moves what it must; none without a curve.

    A region's bytes over its mean share of a profiled pass, and that share against one
    cold read of as many bytes. Which kernel moves which bytes is not known, but where
    a region has one kernel, whose own speed is told too. A share holds what the
    observer adds, and lacks what runs hidden behind another region's kernels.

    Args:
        header: of the run.
        regions: `Measures.regions`, one row an (arm, region).
    """
    if len(header.reads) < FEWEST_READS or not header.bytes:
        return
    found = {(row["arm"], row["region"]): row for row in regions.iter_rows(named=True)}
    rows = tuple(
        _speed_row(needed, found[needed.arm, needed.region], header.reads)
        for needed in header.bytes
        if (needed.arm, needed.region) in found and not needed.arm.endswith(AA_SUFFIX)
    )
    if rows:
        heading = "required bytes against cold reads, a profiled pass"
        yield Table(title=heading, columns=_SPEEDS, rows=rows)


def _speed_row(
    needed: RegionBytes, share: dict[str, float], reads: Sequence[ReadCost]
) -> tuple[Cell, ...]:
    share_ns, kernels = share["share_mean_ns"], share["kernels"]
    read_ns = cold_read_ns(reads, needed.required)
    own = tb_per_s(needed.required, share["duration_mean_ns"]) if kernels == 1 else None
    return (
        needed.arm,
        needed.region,
        kernels,
        needed.required,
        share_ns,
        tb_per_s(needed.required, share_ns),
        read_ns,
        share_ns / read_ns,
        own,
    )


def role_tables(found: Mapping[str, RoleReads]) -> Iterator[Table]:
    """How fast the kernels of every arm read what their roles say they must.

    Times are medians over profiled passes of the serial twin, or, without one, of the
    graph as captured, which the title says: they then include what kernels wait.

    Args:
        found: by arm.
    """
    for arm, roles in found.items():
        of = "as captured, waits included" if roles.has_waits else "serial twin"
        yield Table(
            title=f"kernels of {arm} by role against cold reads, {of}",
            columns=_BY_ROLE,
            rows=tuple(map(_role_row, roles.reads)),
        )


def _role_row(found: RoleRead) -> tuple[Cell, ...]:
    return (
        ", ".join(found.roles),
        found.kernels,
        found.required_bytes,
        found.duration_ns,
        found.time_ns,
        tb_per_s(found.required_bytes, found.time_ns),
        found.cold_read_ns,
        found.time_ns / found.cold_read_ns,
    )


def role_notes(header: RunHeader, found: Mapping[str, RoleReads]) -> Iterator[str]:
    """How to read `role_tables`; nothing where there are none.

    Args:
        header: of the run.
        found: by arm.
    """
    if not found:
        return
    is_draft = isinstance(header.study.spec, DraftSpec)
    what = "w2 and base logits" if is_draft else "weights, and cached K and V"
    waiting = [arm for arm, roles in found.items() if roles.has_waits]
    is_corrected = header.observer_costs and len(waiting) < len(found)
    added = "less" if is_corrected else "with"
    yield (
        f"required of a role are {what}; its kernels' durations and the gaps before "
        f"them, {added} what the profiler adds, stand beside one cold read of as many "
        "bytes, its launch included"
    )
    if waiting:
        yield (
            f"{', '.join(waiting)}: without a serial twin, kernels by role are as "
            "captured: their times hold what they wait and what the profiler adds"
        )
    if is_draft:
        yield "tokens after the first find as much of w2 as the cache holds"
