"""Two arms of a run against each other: what the change between them comes from."""

from layerscope.analyze.ledger import ledger_of
from layerscope.analyze.statistics import (
    Comparison,
    anchor,
    anchor_ns,
    compare,
    noise_floor,
)
from layerscope.analyze.swept import SweptRun, sweep_run
from layerscope.report.arms import arm_names, check_arms, partial_warnings
from layerscope.report.document import (
    Column,
    Fact,
    Interval,
    Kind,
    Report,
    Table,
)
from layerscope.report.facts import floor_text
from layerscope.report.fallbacks import (
    idle_switch_notes,
    no_gain_headline,
    ran_nothing,
)
from layerscope.report.ledger import headline, ledger_notes, ledger_tables
from layerscope.report.observed_runs import compare_observed_arms
from layerscope.report.tables import against, change_cell, unfused_notes
from layerscope.report.work import noun, title
from layerscope.run import Run
from layerscope.trace_spec import TraceSpec

_ARMS = (
    Column("arm", "arm", Kind.TEXT),
    Column("anchor_ns", "anchor", Kind.INTERVAL),
    Column("change_ns", "change", Kind.INTERVAL),
)


def compare_arms(run: Run, arms: tuple[str, str]) -> Report:
    """The ledger from the first of two arms to the second, and what it rests on.

    Args:
        run: what holds both.
        arms: two of its names, the A/A arm's too. Drafts have the same ones.

    Raises:
        InputError: an arm is not in the run, or both are one.
    """
    check_arms(run, arms)
    if isinstance(run.header.study.spec, TraceSpec):
        return compare_observed_arms(run, arms)
    drafts = () if run.draft is None else (run.draft,)
    parts = tuple(_report(draft, arms) for draft in drafts if _has(draft, arms))
    return _report(run, arms, parts)


def _has(run: Run, arms: tuple[str, str]) -> bool:
    return set(arms) <= set(arm_names(run))


def _report(run: Run, arms: tuple[str, str], parts: tuple[Report, ...] = ()) -> Report:
    base, other = arms
    swept = sweep_run(run)
    header, times = run.header, swept.times
    floor_ns = noise_floor(times, arm_names(run)[0], arm_names(run)[-1])
    comparison = compare(times, base, other, floor_ns)
    found = ledger_of(swept, base, other)
    words = against(header, base)
    base_ns, nothing = anchor_ns(times, base), ran_nothing(header)
    return Report(
        title=f"{title(header.study.spec)}: {other} {words}",
        headlines=(
            no_gain_headline(other, nothing[other], words)
            if other in nothing
            else headline(found, comparison, words),
        ),
        facts=(
            Fact("run", str(run.path)),
            Fact("noise floor", floor_text(floor_ns, base_ns, header)),
        ),
        tables=(
            _arm_table(swept, arms, comparison),
            *ledger_tables(found, words),
        ),
        notes=(
            *unfused_notes(header, arms),
            *(f"{arm} {each.told}" for arm, each in nothing.items() if arm in arms),
            *idle_switch_notes(header, arms),
            *ledger_notes(found),
        ),
        warnings=partial_warnings(run),
        parts=parts,
    )


def _arm_table(swept: SweptRun, arms: tuple[str, str], comparison: Comparison) -> Table:
    is_judged = arms[1] not in ran_nothing(swept.header)
    changes = (None, change_cell(comparison, is_judged=is_judged))
    anchors = [anchor(swept.times, arm) for arm in arms]
    return Table(
        title=f"{noun(swept.header.study.spec)}: one pass",
        columns=_ARMS,
        rows=tuple(
            (
                arm,
                Interval(found.value, found.low, found.high) if found.samples else None,
                change,
            )
            for arm, found, change in zip(arms, anchors, changes, strict=True)
        ),
    )
