"""The tables of a report: of the arms, of their regions, and of what was tried."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

import polars as pl

from layerscope.analyze.shares import pass_shares, region_table
from layerscope.analyze.statistics import Comparison
from layerscope.experiment import CAPTURED
from layerscope.layers.draft_spec import DraftSpec
from layerscope.report.bounds import bounds_table
from layerscope.report.document import Cell, Column, Interval, Kind, Table, Traffic
from layerscope.report.experiments import knock_out_tables, what_if_tables
from layerscope.report.fallbacks import RanNothing, own_regions, ran_nothing
from layerscope.report.ledger import ledger_tables
from layerscope.report.limits import role_tables, speeds_table
from layerscope.report.measures import Measures
from layerscope.report.stamps import stamp_tables
from layerscope.report.switches import switch_tables
from layerscope.report.verdicts import early_tables
from layerscope.report.work import noun
from layerscope.run import Run
from layerscope.run_header import RegionBytes, RunHeader
from layerscope.study import AA_SUFFIX, CallableSpec

REFERENCE: Final = "reference"
"""The backend in plain torch: every change against it must say so."""

_LAYER: Final = (
    Column("arm", "arm", Kind.TEXT),
    Column("anchor_ns", "anchor", Kind.INTERVAL),
    Column("change_ns", "change", Kind.INTERVAL),
    Column("traffic_bytes", "touched / required", Kind.TRAFFIC),
    Column("profiled_ns", "profiled mean", Kind.TIME),
    Column("kernels", "kernels", Kind.COUNT),
)
_OWN_REGIONS: Final = Column("own_regions", "own regions", Kind.TEXT)
"""There where an arm has none."""

_REGIONS: Final = (
    Column("region", "region", Kind.REGION),
    Column("kernels", "kernels", Kind.COUNT),
    Column("share_mean_ns", "mean share", Kind.TIME),
    Column("share_median_ns", "median share", Kind.TIME),
    Column("gap_mean_ns", "gap", Kind.TIME),
    Column("duration_mean_ns", "sum", Kind.TIME),
    Column("hidden_mean_ns", "hidden", Kind.TIME),
    Column("span_median_ns", "last end − first start", Kind.TIME),
)
_ROLES: Final = (
    Column("region", "role", Kind.TEXT),
    *(column for column in _REGIONS[1:] if column.key != "span_median_ns"),
)
_NO_ROLE: Final = "(none)"
_CHANGE: Final = Column("change_ns", "change", Kind.INTERVAL)
_ADDS_UP: Final = (
    *("kernels", "share_mean_ns", "gap_mean_ns"),
    *("duration_mean_ns", "hidden_mean_ns"),
)


def tables(run: Run, measured: Measures) -> tuple[Table, ...]:
    """The pass by arm, every profiled arm by region, and why arms differ.

    A draft also by token. Then what experiments and bounds say, where there are any.
    """
    header = run.header
    profiled = [arm for arm in measured.arms if arm in measured.profiled_ns]
    by_region = tuple(_region_table(header, measured, arm) for arm in profiled)
    by_token: tuple[Table, ...] = ()
    if isinstance(header.study.spec, DraftSpec):
        by_token = tuple(_role_tables(run, measured.again))
    words = against(header, measured.base)
    return (
        _layer_table(header, measured),
        *by_region,
        *by_token,
        *(
            table
            for found in measured.ledgers.values()
            for table in ledger_tables(found, words)
        ),
        *switch_tables(measured.mechanisms),
        *early_tables(measured.diagnoses),
        *stamp_tables(measured.stamped),
        *what_if_tables(measured.what_ifs),
        *knock_out_tables(measured.knocked, measured.regions),
        *bounds_table(header, measured.anchors),
        *speeds_table(header, measured.captured_regions),
        *role_tables(measured.role_reads),
    )


def _role_tables(run: Run, again: str) -> Iterator[Table]:
    """What every role of an arm takes, of the arms that name some, as they are run."""
    captured = run.kernels.filter(pl.col("experiment") == CAPTURED)
    named = captured.filter(pl.col("role").is_not_null())["arm"].unique().sort()
    compared = {arm.name for arm in run.header.study.arms}
    for arm in named:
        if arm == again or arm not in compared:
            continue
        kernels = captured.filter(pl.col("arm") == arm)
        by_role = kernels.with_columns(region=pl.col("role").fill_null(_NO_ROLE))
        order = by_role.group_by("region").agg(pl.col("node").min())
        found = region_table(pass_shares(by_role)).join(order, on="region")
        rows = found.sort("node").select([column.key for column in _ROLES]).rows()
        yield Table(f"roles of {arm}, a profiled pass", _ROLES, tuple(rows))


def against(header: RunHeader, base: str) -> str:
    """What changes are against, in words that never hide an unfused baseline."""
    nothing = ran_nothing(header)
    name = f"{base}, which ran nothing of its own" if base in nothing else base
    if _is_unfused(header, base, nothing):
        return f"against unfused torch ({name})"
    return f"against {name}"


def unfused_notes(header: RunHeader, arms: Iterable[str]) -> Iterator[str]:
    """That a change is against unfused torch, where some of `arms` are and some not."""
    nothing = ran_nothing(header)
    if len({_is_unfused(header, arm, nothing) for arm in arms}) > 1:
        yield (
            "every change to or from reference is against unfused torch, not against "
            "a serving kernel chain"
        )


def _is_unfused(header: RunHeader, arm: str, nothing: Mapping[str, RanNothing]) -> bool:
    """Whether all that `arm` ran is plain torch of ours, under whatever name."""
    if isinstance(header.study.spec, CallableSpec):
        return False
    if arm in nothing:
        return nothing[arm].backends == (REFERENCE,)
    backends = {each.name: each.backend for each in header.study.all_arms}
    return backends.get(arm) == REFERENCE


def _layer_table(header: RunHeader, measured: Measures) -> Table:
    measured_noun = noun(header.study.spec)
    nothing = ran_nothing(header)
    plain = Table(
        title=f"{measured_noun}: one pass, change {against(header, measured.base)}",
        columns=_LAYER,
        rows=tuple(_layer_row(header, measured, arm, nothing) for arm in measured.arms),
    )
    if not nothing:
        return plain
    own = [own_regions(header, arm) for arm in measured.arms]
    rows = tuple((*row, each) for row, each in zip(plain.rows, own, strict=True))
    return replace(plain, columns=(*_LAYER, _OWN_REGIONS), rows=rows)


def _layer_row(
    header: RunHeader, measured: Measures, arm: str, nothing: Collection[str]
) -> tuple[Cell, ...]:
    anchor = measured.anchors[arm]
    is_judged = arm != measured.again and arm not in nothing
    return (
        arm,
        Interval(anchor.value, anchor.low, anchor.high) if anchor.samples else None,
        change_cell(measured.comparisons.get(arm), is_judged=is_judged),
        _traffic(header.bytes, arm.removesuffix(AA_SUFFIX)),
        measured.profiled_ns.get(arm),
        measured.kernels.get(arm),
    )


def _traffic(rows: list[RegionBytes], arm: str) -> Traffic | None:
    """Bytes touched and required by a pass of `arm`, over all its regions."""
    own = [row for row in rows if row.arm == arm]
    if not own:
        return None
    known = [row.touched for row in own if row.touched is not None]
    touched = sum(known) if len(known) == len(own) else None
    required = sum(row.required for row in own)
    ratio = touched / required if touched is not None and required else None
    return Traffic(touched, required, ratio)


def _region_table(header: RunHeader, measured: Measures, arm: str) -> Table:
    plain = region_table_of(measured, arm, f"regions of {arm}, a profiled pass")
    if arm == measured.base:
        return plain
    *rows, total = plain.rows
    is_judged = arm != measured.again and not why_unjudged(header, measured, arm)
    known = measured.region_names(measured.base)
    changes = {
        name: change
        for name, change in measured.share_changes[arm].items()
        if name in known
    }
    title = f"{plain.title}, change of mean share "
    return Table(
        title=title + against(header, measured.base),
        columns=(*_REGIONS, _CHANGE),
        rows=(
            *(
                (*row, change_cell(changes.get(str(row[0])), is_judged=is_judged))
                for row in rows
            ),
            (*total, None),
        ),
        has_total=True,
    )


def region_table_of(measured: Measures, arm: str, title: str) -> Table:
    """Where the time of a recorded pass of `arm` goes, without any change."""
    found = measured.captured_regions.filter(pl.col("arm") == arm)
    keys = [column.key for column in _REGIONS]
    totals = found.select(_ADDS_UP).sum().row(0, named=True)
    total: tuple[Cell, ...] = ("total", *(totals.get(key) for key in keys[1:]))
    return Table(title, _REGIONS, (*found.select(keys).rows(), total), has_total=True)


def why_unjudged(header: RunHeader, measured: Measures, arm: str) -> str:
    """Why changes of the regions of `arm` get no verdict; empty where they do."""
    if arm in ran_nothing(header):
        return "it ran nothing of its own"
    if measured.region_names(arm) != measured.region_names(measured.base):
        return f"its regions are not those of {measured.base}"
    is_foreign = isinstance(header.study.spec, CallableSpec)
    if is_foreign and header.environment.device.type == "cpu":
        return "on a CPU marks and hooks take time of their own"
    return ""


def change_cell(comparison: Comparison | None, *, is_judged: bool) -> Interval | None:
    """The change with its verdict, but for the A/A arm, which the floor is made of."""
    if comparison is None or not comparison.difference.samples:
        return None
    difference = comparison.difference
    return Interval(
        value=difference.value,
        low=difference.low,
        high=difference.high,
        relative=comparison.relative,
        verdict=comparison.verdict if is_judged else "",
        reason=comparison.reason if is_judged else "",
    )
