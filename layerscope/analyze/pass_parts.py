"""The time of an arm's pass, by what could give it back; for its diagnosis."""

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

import polars as pl

from layerscope.analyze.read_curve import FEWEST_READS, cold_read_ns
from layerscope.analyze.statistics import anchor_ns
from layerscope.analyze.swept import SweptRun
from layerscope.experiment import SERIAL
from layerscope.layers.spec import LayerSpec
from layerscope.passes import GRAPH_PASS_KEYS
from layerscope.run_header import RunHeader
from layerscope.study import AA_SUFFIX

SHORT_KERNEL_NS: Final = 2_000
"""Kernels up to this long count as launches where cold reads were not calibrated: it is
what one kernel takes that reads 1 MB on an H200, most of it its launch and its tail."""

_NO_PDL: Final = "no PDL"
_LEGAL: Final = "legal early start"
_ONE_READ: Final = "one read"

_TALKING: Final = r"(?i)nccl|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedPass:
    """A profiled pass, every advance of its frontier in one part; means in ns."""

    kernels: float
    short_kernels: float
    """Those that are no longer than a launch takes."""

    launch_gap_ns: float
    programmatic_gap_ns: float
    """Gaps that kernels behind programmatic edges end."""

    short_ns: float
    talking_ns: float
    """Gaps and kernels of communication between real ranks."""

    working_ns: float
    """Kernels that are none of these."""

    @property
    def pass_ns(self) -> float:
        """The increment of the pass: what the parts add up to."""
        gaps_ns = self.launch_gap_ns + self.programmatic_gap_ns
        return gaps_ns + self.short_ns + self.talking_ns + self.working_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a pass could be and do; ns a pass, None where it was not measured."""

    one_read_ns: float | None
    """One kernel that reads all required bytes."""

    legal_ns: float | None
    """The standard chain of the layer, each kernel as early as it legally can be."""

    promised_ns: float | None
    """What such starts save the arm's kernels, or else the standard chain's."""

    benefit_ns: float | None
    """What overlap gives the arm: its serial twin less its anchor."""

    longer_ns: float | None
    """By how much durations exceed those in the serial twin: kernels wait for others
    inside themselves, or share the memory with them."""

    exposed_wait_ns: float | None
    """What of `longer_ns` exceeds the time that is hidden behind other kernels; the
    rest costs the pass nothing."""


def recorded_pass(swept: SweptRun, arm: str) -> RecordedPass | None:
    """The profiled pass of `arm`, as captured; None where none was recorded."""
    used, header = swept.graph(arm), swept.header
    if used.is_empty():
        return None
    programmatic: Collection[int] = header.programmatic.get(arm, [])
    name, duration = pl.col("name"), pl.col("duration_ns")
    talking = name.str.contains(_TALKING) if _has_ranks(header) else pl.lit(value=False)
    talks = pl.col("_talks")
    short = ~talks & (duration <= _short_ns(header))
    behind = ~talks & pl.col("node").is_in(list(programmatic))
    gap, exclusive = pl.col("gap_ns"), pl.col("exclusive_ns")
    passes = used.select(GRAPH_PASS_KEYS).n_unique()
    sums = (
        used.with_columns(_talks=talking)
        .select(
            kernels=pl.len(),
            short_kernels=short.sum(),
            launch_gap_ns=gap.filter(~talks & ~behind).sum(),
            programmatic_gap_ns=gap.filter(behind).sum(),
            short_ns=exclusive.filter(short).sum(),
            talking_ns=(gap + exclusive).filter(talks).sum(),
            working_ns=exclusive.filter(~talks & ~short).sum(),
        )
        .row(0, named=True)
    )
    return RecordedPass(**{name: value / passes for name, value in sums.items()})


def limits(swept: SweptRun, arm: str) -> Limits:
    """What `arm` is held against."""
    header, times = swept.header, swept.times
    early_ns, late_ns = (bound(header, arm, name) for name in (_LEGAL, _NO_PDL))
    promised_ns = None
    if early_ns is not None and late_ns is not None:
        promised_ns = max(0.0, late_ns - early_ns)
    serial_ns = anchor_ns(times, arm, experiment=SERIAL.name)
    benefit_ns = serial_ns - anchor_ns(times, arm)
    longer = _longer(swept, arm)
    one_read_ns = bound(header, arm, _ONE_READ)
    if one_read_ns is None and len(header.reads) >= FEWEST_READS:
        required = sum(required_bytes(header, arm).values())
        one_read_ns = cold_read_ns(header.reads, required) if required else None
    return Limits(
        one_read_ns=one_read_ns,
        legal_ns=bound(header, "", _LEGAL),
        promised_ns=promised_ns,
        benefit_ns=None if math.isnan(benefit_ns) else benefit_ns,
        longer_ns=None if longer is None else longer[0],
        exposed_wait_ns=None if longer is None else longer[1],
    )


def bound(header: RunHeader, arm: str, name: str) -> float | None:
    """A bound in ns: of the arm's own kernels, or else of the standard chain."""
    found = {each.arm: each.pass_ns for each in header.bounds if each.name == name}
    return found.get(arm, found.get(""))


def required_bytes(header: RunHeader, arm: str) -> dict[str, int]:
    """Bytes that each region of a pass must move."""
    own = arm.removesuffix(AA_SUFFIX)
    return {each.region: each.required for each in header.bytes if each.arm == own}


def furthest_region(swept: SweptRun, arm: str) -> str:
    """The region that takes most beyond one cold read of what it must move.

    Empty where reads were not calibrated, or nothing was recorded.
    """
    reads, needed = swept.header.reads, required_bytes(swept.header, arm)
    used = swept.graph(arm)
    if len(reads) < FEWEST_READS or used.is_empty():
        return ""
    passes = used.select(GRAPH_PASS_KEYS).n_unique()
    share_ns = (pl.col("gap_ns") + pl.col("exclusive_ns")).sum() / passes
    shares: dict[str, float] = dict(
        used.group_by("region", maintain_order=True).agg(share_ns=share_ns).iter_rows()
    )
    return max(
        shares,
        key=lambda region: shares[region] - cold_read_ns(reads, needed.get(region, 0)),
    )


def _longer(swept: SweptRun, arm: str) -> tuple[float, float] | None:
    """By how much durations, and what of them is not hidden, exceed the twin's."""
    captured, serial = swept.graph(arm), swept.graph(arm, SERIAL.name)
    if captured.is_empty() or serial.is_empty():
        return None
    serial_ns = _mean_sum(serial, "duration_ns")
    longer_ns = _mean_sum(captured, "duration_ns") - serial_ns
    exposed_ns = _mean_sum(captured, "exclusive_ns") - serial_ns
    return max(0.0, longer_ns), max(0.0, exposed_ns)


def _mean_sum(used: pl.DataFrame, column: str) -> float:
    """The sum of a pass, mean over passes."""
    return int(used[column].sum()) / used.select(GRAPH_PASS_KEYS).n_unique()


def _has_ranks(header: RunHeader) -> bool:
    """Whether communication is in the pass: not in a slice of one rank."""
    spec = header.study.spec
    return not isinstance(spec, LayerSpec) or (spec.tp > 1 and not spec.shard_shaped)


def _short_ns(header: RunHeader) -> float:
    return header.reads[0].duration_ns if header.reads else SHORT_KERNEL_NS
