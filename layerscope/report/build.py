"""From a run to its report."""

from collections.abc import Iterator
from typing import Final

from layerscope.analyze.clocks import throttle_reasons
from layerscope.analyze.statistics import Verdict
from layerscope.layers.spec import LayerSpec
from layerscope.report.bounds import bounds_notes
from layerscope.report.document import Fact, Report
from layerscope.report.experiments import experiment_notes
from layerscope.report.facts import facts
from layerscope.report.fallbacks import (
    fallback_notes,
    idle_switch_notes,
    no_gain_headline,
    ran_nothing,
)
from layerscope.report.launches import launch_notes, launch_warnings
from layerscope.report.ledger import headline, ledger_notes
from layerscope.report.limits import role_notes
from layerscope.report.measures import Measures, measures
from layerscope.report.observed import observed_report
from layerscope.report.region_names import region_name
from layerscope.report.stamps import stamp_notes
from layerscope.report.switches import switch_headlines, switch_notes
from layerscope.report.tables import against, tables, unfused_notes, why_unjudged
from layerscope.report.verdicts import early_notes, verdicts
from layerscope.report.work import noun, title
from layerscope.run import Run
from layerscope.run_header import RunHeader
from layerscope.trace_spec import TraceSpec
from layerscope.units import (
    format_estimate,
    format_ns,
    format_number,
    format_percent,
)

_HEAVY_OBSERVER: Final = 0.5
"""Part of an anchor that the profiler may add before shares are doubted."""

_OTHER_CHANGE: Final = 0.01
"""Part of the base by which two changes must be apart to be told."""


def build_report(run: Run) -> Report:
    """The report of `run`; a partial one reports what there is, and says so."""
    parts: tuple[Report, ...] = ()
    if run.draft is not None:
        measured = measures(run.draft, run.header.reads)
        parts = (report_of(run.draft, measured, is_part=True),)
    return report_of(run, measures(run), parts=parts)


def report_of(
    run: Run,
    measured: Measures,
    *,
    is_part: bool = False,
    parts: tuple[Report, ...] = (),
) -> Report:
    """The report of `run`, for who has its measures already.

    Args:
        run: what is reported.
        measured: its measures.
        is_part: whether it stands below another of the same machine.
        parts: the reports below it.
    """
    if isinstance(run.header.study.spec, TraceSpec):
        return observed_report(run, measured)
    general = () if is_part else _general_notes(measured)
    return Report(
        title=title(run.header.study.spec),
        headlines=(
            *_headlines(run.header, measured),
            *switch_headlines(measured.mechanisms),
            *verdicts(measured.diagnoses),
        ),
        facts=facts(run, measured, with_machine=not is_part),
        tables=tables(run, measured),
        notes=(*general, *_notes(run.header, measured)),
        warnings=tuple(_warnings(run, measured)),
        parts=parts,
    )


def _headlines(header: RunHeader, measured: Measures) -> Iterator[Fact]:
    words = against(header, measured.base)
    nothing = ran_nothing(header)
    for arm, found in measured.ledgers.items():
        if arm in nothing:
            yield no_gain_headline(arm, nothing[arm], words)
        else:
            yield headline(found, measured.comparisons[arm], words)


def _general_notes(measured: Measures) -> Iterator[str]:
    yield (
        "anchor: time of a pass in unprofiled replays, mean over captures of the "
        "median over rounds, with 95 % interval; changes are paired by round and "
        "judged against the noise floor"
    )
    if measured.profiled_ns:
        yield (
            "shares are observed: where the time of a profiled pass goes, not what "
            "removing a region would save; mean shares add up to the profiled mean, "
            "gaps, sums and hidden times to their totals, medians to nothing"
        )


def _notes(header: RunHeader, measured: Measures) -> Iterator[str]:
    spec = header.study.spec
    yield from unfused_notes(header, measured.arms)
    if isinstance(spec, LayerSpec) and spec.shard_shaped:
        yield "shard-shaped: the all-reduce between ranks is in no figure"
    yield from _notes_on_arms(header, measured)
    for found in measured.ledgers.values():
        yield from ledger_notes(found)
    yield from switch_notes(measured.mechanisms)
    yield from stamp_notes(measured.stamped)
    yield from early_notes(measured.diagnoses)
    yield from experiment_notes(header, measured.knocked)
    yield from bounds_notes(header)
    yield from role_notes(header, measured.role_reads)
    yield from launch_notes(header)


def _notes_on_arms(header: RunHeader, measured: Measures) -> Iterator[str]:
    for arm, comparison in measured.comparisons.items():
        if comparison.verdict is Verdict.UNKNOWN and arm != measured.again:
            yield f"{arm}: unknown whether it differs: {comparison.reason}"
    yield from _notes_on_regions(header, measured)
    yield from fallback_notes(header)
    yield from idle_switch_notes(header, measured.arms)


def _notes_on_regions(header: RunHeader, measured: Measures) -> Iterator[str]:
    for arm in measured.comparisons:
        why = why_unjudged(header, measured, arm) if arm in measured.profiled_ns else ""
        if why and arm != measured.again:
            yield f"{arm}: changes of its regions have no verdict: {why}"
    for row in measured.regions.iter_rows(named=True):
        fewest, most = row["kernels_min"], row["kernels_max"]
        if fewest != most:
            yield (
                f"{row['arm']}: kernels a pass vary between {fewest} and {most} in "
                f"{region_name(row['region'])}"
            )


def _warnings(run: Run, measured: Measures) -> Iterator[str]:
    header = run.header
    if header.status == "partial":
        yield f"partial run: {header.status_reason}"
    if run.kernels.is_empty():
        yield "no kernels were recorded, so there are no shares by region"
    if not measured.anchors[measured.base].samples:
        yield "no whole round was sampled, so there are no anchors"
    if header.study.draft is not None and run.draft is None:
        yield "the draft is missing: it was not measured, or stopped before a sample"
    for arm in ran_nothing(header):
        if arm != measured.again:
            yield f"{arm} ran nothing of its own: its figures are the fallback's"
    yield from _doubts(header, measured)
    yield from launch_warnings(header)
    reasons = throttle_reasons(run.samples)
    if reasons:
        yield f"the clock was held down: {', '.join(reasons)}"
    yield from header.warnings


def _doubts(header: RunHeader, measured: Measures) -> Iterator[str]:
    """What in the figures themselves speaks against them."""
    base_ns = measured.anchors[measured.base].value
    measured_noun = noun(header.study.spec)
    aimed = header.study.target_interval
    for arm, comparison in measured.comparisons.items():
        if comparison.verdict is Verdict.UNKNOWN:
            continue
        found = comparison.difference
        if arm == measured.again and not found.low <= 0 <= found.high:
            change = format_estimate(
                found.value, found.low, found.high, comparison.relative
            )
            yield (
                f"{measured.base}, made twice, differs from itself by {change}: the "
                "noise floor includes it"
            )
        reached = (found.high - found.low) / 2 / base_ns
        if reached > aimed:
            yield (
                f"the interval of {arm} is ±{format_percent(reached)} of the "
                f"{measured_noun}, wider than the {format_percent(aimed)} aimed at; "
                "raise --time-budget or --captures"
            )
    yield from _profiler_doubts(measured)


def _profiler_doubts(measured: Measures) -> Iterator[str]:
    for arm, added in measured.observer_effects.items():
        anchor_ns = measured.anchors[arm].value
        if added.low > _HEAVY_OBSERVER * anchor_ns:
            times = format_number(1 + added.value / anchor_ns, 1)
            yield (
                f"a pass of {arm} took {times} times as long under the profiler: its "
                "shares are of that slower pass"
            )
    for arm, shift in measured.shifts.items():
        if shift.excess_ns > 0:
            moved = format_ns(shift.value_ns, signed=True)
            yield (
                f"the anchor of {arm} moved by {moved} from before the profiler to "
                "after it, beyond the 95 % spread of captures"
            )
    yield from _other_changes(measured)


def _other_changes(measured: Measures) -> Iterator[str]:
    """What arms differ from the base by after the profiler, where it is not as before.

    The two must be further apart than what both shifts may be by chance.
    """
    base = measured.shifts.get(measured.base)
    if base is None:
        return
    before_ns = measured.anchors[measured.base].value
    after_ns = before_ns + base.value_ns
    for arm, comparison in measured.comparisons.items():
        shift = measured.shifts.get(arm)
        is_judged = comparison.verdict is not Verdict.UNKNOWN
        if shift is None or arm == measured.again or not is_judged:
            continue
        before = measured.anchors[arm].value / before_ns - 1
        after = (measured.anchors[arm].value + shift.value_ns) / after_ns - 1
        bound = (shift.bound_ns + (1 + before) * base.bound_ns) / before_ns
        if abs(after - before) > max(bound, _OTHER_CHANGE):
            told = format_percent(comparison.relative, signed=True)  # as elsewhere
            yield (
                f"{arm} against {measured.base} is {told}, but "
                f"{format_percent(after, signed=True)} after the profiler: what hiding "
                "launches gains depends on how fast kernels are launched, which may "
                "have been different then"
            )
