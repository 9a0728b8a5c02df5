"""From a run to its report."""

from collections.abc import Iterator

from layerscope.analyze.statistics import Verdict
from layerscope.report.clocks import throttle_reasons
from layerscope.report.document import Report
from layerscope.report.facts import facts
from layerscope.report.measures import Measures, measures
from layerscope.report.tables import REFERENCE, tables
from layerscope.run import Run, RunHeader
from layerscope.units import format_ns


def build_report(run: Run) -> Report:
    """The report of `run`; a partial one reports what there is, and says so."""
    measured = measures(run)
    spec = run.header.study.spec
    return Report(
        title=f"{spec.model.name}, layer {spec.layer}",
        facts=facts(run, measured),
        tables=tables(run.header, measured),
        notes=tuple(_notes(run.header, measured)),
        warnings=tuple(_warnings(run, measured)),
    )


def _notes(header: RunHeader, measured: Measures) -> Iterator[str]:
    yield (
        "anchor: time of a pass in unprofiled replays, median with 95 % interval; "
        "changes are paired by round and judged against the noise floor"
    )
    if measured.profiled_ns:
        yield (
            "shares are observed: where the time of a profiled pass goes, not what "
            "removing a region would save; only mean shares, gaps, sums and hidden "
            "times add up"
        )
    backends = {arm.backend for arm in header.study.arms}
    if REFERENCE in backends and len(header.study.arms) > 1:
        yield (
            "every change to or from reference is against unfused torch, not against "
            "a serving kernel chain"
        )
    if header.study.spec.shard_shaped:
        yield "shard-shaped: the all-reduce between ranks is in no figure"
    for arm, comparison in measured.comparisons.items():
        if comparison.verdict is Verdict.UNKNOWN:
            yield f"{arm}: unknown whether it differs: {comparison.reason}"
    for decision in header.decisions:
        if decision.reason:
            yield (
                f"{decision.arm}: {decision.region} ran on {decision.backend} "
                f"({decision.reason})"
            )


def _warnings(run: Run, measured: Measures) -> Iterator[str]:
    header = run.header
    if header.status == "partial":
        yield f"partial run: {header.status_reason}"
    if run.kernels.is_empty():
        yield "no kernels were recorded, so there are no shares by region"
    if not measured.anchors[measured.base].samples:
        yield "no whole round was sampled, so there are no anchors"
    for arm, shift in measured.shifts.items():
        if shift.excess_ns > 0:
            moved = format_ns(shift.value_ns, signed=True)
            yield (
                f"the anchor of {arm} moved by {moved} from before the profiler to "
                "after it, more than captures differ: the machine changed in the run"
            )
    reasons = throttle_reasons(run.samples)
    if reasons:
        yield f"the clock was held down: {', '.join(reasons)}"
    yield from header.warnings
