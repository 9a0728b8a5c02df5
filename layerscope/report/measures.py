"""What the tables and facts of one run are made of, computed once."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import polars as pl

from layerscope.analyze.bootstrap import (
    LEVEL,
    independent_difference,
    prediction_bound,
)
from layerscope.analyze.causes import Ledger
from layerscope.analyze.diagnosis import Diagnosis, diagnosis_of
from layerscope.analyze.knockouts import KnockOut, knock_outs
from layerscope.analyze.ledger import ledger_of
from layerscope.analyze.role_reads import RoleReads, role_reads
from layerscope.analyze.shares import region_shares, region_table
from layerscope.analyze.stamps import StampedPass, stamped_passes
from layerscope.analyze.statistics import (
    ANCHOR,
    Comparison,
    Estimate,
    anchor,
    anchor_ns,
    compare,
    linearity,
    noise_floor,
    profiled_pass,
    share_changes,
)
from layerscope.analyze.swept import sweep_run
from layerscope.analyze.switches import Mechanisms, mechanisms
from layerscope.analyze.what_ifs import WhatIf, what_ifs
from layerscope.experiment import CAPTURED
from layerscope.run import Run
from layerscope.run_header import ReadCost
from layerscope.trace_spec import TraceSpec

AFTER = "after"
"""The phase of the replays that ran once the profiler was detached."""


@dataclass(frozen=True, slots=True)
class Shift:
    """How far an arm's anchor moved from before the profiler to after it, in ns."""

    value_ns: float

    bound_ns: float
    """What one capture, as was measured after, may differ from the ones before.

    It holds for 95 % of runs, all their arms together. Infinite after one capture.
    """

    @property
    def excess_ns(self) -> float:
        """How far the shift is beyond that; not positive where it is not."""
        return abs(self.value_ns) - self.bound_ns


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """Times, shares and comparisons of a run; times in ns."""

    base: str
    """The arm that others are compared with: the first."""

    again: str
    """The A/A arm: the first one, captured again; empty where there is none."""

    arms: tuple[str, ...]
    """Every arm of the study, the A/A arm last, measured or not."""

    times: pl.DataFrame
    """`pass_times.pass_times` of the run."""

    shares: pl.DataFrame
    """`schema.PASS_SHARES` of every graph; empty without kernels."""

    anchors: dict[str, Estimate]
    """Of every arm; NaN and no samples for one that was not measured."""

    shifts: dict[str, Shift]
    """Of every arm that was measured again once the profiler was detached."""

    comparisons: dict[str, Comparison]
    """Of every arm but the base, against it."""

    floor_ns: float
    """The noise floor; infinite where too few A/A rounds exist."""

    observer_effects: dict[str, Estimate]
    """What the profiler added to a pass, of every arm that was profiled."""

    linearity: pl.DataFrame
    """`statistics.linearity` of the anchor phase, captured graphs."""

    regions: pl.DataFrame
    """`shares.region_table` of every graph; empty without kernels."""

    share_changes: dict[str, dict[str, Comparison]]
    """By arm but the base, then by region; mean share a pass. None of a trace."""

    ledgers: dict[str, Ledger]
    """Of every measured arm but the base and the A/A arm, against the base."""

    what_ifs: dict[str, tuple[WhatIf, ...]]
    """By arm: graphs edited otherwise than for the ledger."""

    knocked: dict[str, tuple[KnockOut, ...]]
    """By arm; empty where no region was taken out."""

    mechanisms: tuple[Mechanisms, ...]
    """Of every backend whose switches are told apart."""

    stamped: tuple[StampedPass, ...]
    """Of every arm whose blocks have noted when they worked."""

    diagnoses: dict[str, Diagnosis]
    """Of every measured arm but the A/A arm."""

    role_reads: dict[str, RoleReads]
    """By arm; none of an arm whose kernels have no role that says what they read."""

    @property
    def captured_regions(self) -> pl.DataFrame:
        """`shares.region_table` of the captured graphs."""
        return self.regions.filter(pl.col("experiment") == CAPTURED)

    def region_names(self, arm: str) -> frozenset[str]:
        """Regions in which `arm` had kernels."""
        return frozenset(self.captured_regions.filter(pl.col("arm") == arm)["region"])

    @property
    def profiled_ns(self) -> dict[str, float]:
        """Mean increment of a profiled pass, of every arm that was profiled.

        It is what the mean shares of the regions add up to.
        """
        sums = self.captured_regions.group_by("arm").agg(pl.col("share_mean_ns").sum())
        return dict(sums.iter_rows())

    @property
    def kernels(self) -> dict[str, float]:
        """Kernels a pass, of every arm that was profiled."""
        sums = self.captured_regions.group_by("arm").agg(pl.col("kernels").sum())
        return dict(sums.iter_rows())


def measures(run: Run, reads: Sequence[ReadCost] = ()) -> Measures:
    """Everything that is reported of `run`, however little of it was measured.

    Args:
        run: what is reported.
        reads: the curve of cold reads of its machine, for a draft, which has none of
            its own: that of its layer's run.
    """
    arms = tuple(arm.name for arm in run.header.study.all_arms)
    is_trace = isinstance(run.header.study.spec, TraceSpec)
    base, again = arms[0], "" if is_trace else arms[-1]
    swept = sweep_run(_of_arms(run, arms))
    times = swept.times
    anchors = {arm: anchor(times, arm) for arm in arms}
    floor_ns = noise_floor(times, base, again)
    shares = region_shares(swept.kernels)
    regions = region_table(shares)
    profiled = set(regions.filter(pl.col("experiment") == CAPTURED)["arm"])
    measured = [arm for arm in arms[:-1] if anchors[arm].samples]
    whole = (pl.col("phase") == ANCHOR, pl.col("experiment") == CAPTURED)
    return Measures(
        base=base,
        again=again,
        arms=arms,
        times=times,
        shares=shares,
        anchors=anchors,
        shifts=_shifts(times),
        comparisons={arm: compare(times, base, arm, floor_ns) for arm in arms[1:]},
        floor_ns=floor_ns,
        observer_effects={
            arm: independent_difference(profiled_pass(shares, arm), anchors[arm])
            for arm in arms
            if anchors[arm].samples and arm in profiled
        },
        linearity=linearity(swept.run.samples.filter(whole)),
        regions=regions,
        share_changes={
            arm: share_changes(shares, base, arm) for arm in arms[1:] if not is_trace
        },
        ledgers={arm: ledger_of(swept, base, arm) for arm in measured if arm != base},
        what_ifs={arm: what_ifs(run.header, times, arm) for arm in measured},
        knocked={arm: knock_outs(run.header, times, arm) for arm in measured},
        mechanisms=mechanisms(run, floor_ns),
        stamped=stamped_passes(run, floor_ns),
        diagnoses={arm: diagnosis_of(swept, arm) for arm in measured},
        role_reads={
            arm: found for arm in measured if (found := role_reads(swept, arm, reads))
        },
    )


def _of_arms(run: Run, arms: Sequence[str]) -> Run:
    """`run` without the rows of arms that are there for switches or stamps only."""
    study = run.header.study
    if not (study.switch_arms or study.stamp_arms):
        return run
    compared = pl.col("arm").is_in(arms)
    return replace(
        run, samples=run.samples.filter(compared), kernels=run.kernels.filter(compared)
    )


def _shifts(times: pl.DataFrame) -> dict[str, Shift]:
    shifts = {}
    captured = pl.col("experiment") == CAPTURED
    arms = times.filter(pl.col("phase") == AFTER)["arm"].unique().sort()
    # several arms are looked at, and one that strays by chance must stay rare (Dunn
    # 1961, after Bonferroni)
    level = 1 - (1 - LEVEL) / max(arms.len(), 1)
    for arm in arms:
        rows = times.filter(captured, pl.col("phase") == ANCHOR, pl.col("arm") == arm)
        if rows.height:
            medians = rows.group_by("capture").agg(pl.col("pass_ns").median())
            bound_ns = prediction_bound(medians["pass_ns"].to_numpy(), level)
            before_ns = anchor_ns(times, arm)
            after_ns = anchor_ns(times, arm, phase=AFTER)
            shifts[arm] = Shift(after_ns - before_ns, bound_ns)
    return shifts
