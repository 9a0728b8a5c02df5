"""Whether a run is slower than another by more than is allowed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from layerscope.analyze.across_runs import WIDE, Gate, Outcome, across, gate
from layerscope.analyze.same_work import refuse_different
from layerscope.errors import InputError
from layerscope.report.across_runs import (
    COLUMNS,
    arm_label,
    change_text,
    idle_notes,
    machine_notes,
    ran_nothing_warnings,
    row,
    run_facts,
)
from layerscope.report.arms import arm_names, check_arm, partial_warnings
from layerscope.report.document import Column, Fact, Kind, Report, Table
from layerscope.report.work import noun, title
from layerscope.run import Run
from layerscope.study import AA_SUFFIX
from layerscope.trace_spec import TraceSpec
from layerscope.units import format_ns, format_percent

_OUTCOME: Final = (
    Column("outcome", "gate", Kind.TEXT),
    Column("reason", "reason", Kind.TEXT),
)
_ADVICE: Final = "record both runs alike, on one machine"


@dataclass(frozen=True, slots=True)
class GateReport:
    """What a gate says, and the numbers behind it."""

    outcome: Outcome
    """The worst of all arms: a failure before what is unknown before a pass."""

    report: Report
    """One headline an arm, drafts included."""


def gate_runs(
    run: Run, against: Run, allowed: float, arms: tuple[str, ...] = ()
) -> GateReport:
    """Whether arms of `run` are slower than in `against` by more than `allowed`.

    Drafts are judged likewise, where both runs have them.

    Args:
        run: what is judged.
        against: what it is judged by.
        allowed: a fraction of the time before, such as 0.02.
        arms: which; none stands for all of `against`.

    Raises:
        InputError: the runs differ in what matters, or an arm is in one of them only.
    """
    _refuse_traces(run, against)
    refuse_different(against.header, run.header, _ADVICE)
    chosen = arms or _arms(against)
    for arm in chosen:
        check_arm(against, arm)
        if arm not in arm_names(run):
            msg = (
                f"{arm} is in {against.path} and not in {run.path}; "
                "choose arms of both with --arm"
            )
            raise InputError(msg)
    gates = [gate(across(against, run, arm, arm), allowed) for arm in chosen]
    drafts = _draft_gates(run, against, allowed, chosen)
    worst = _worst({each.outcome for each in (*gates, *drafts)})
    spec = run.header.study.spec
    tables = [_table(noun(spec), gates)]
    if drafts:
        tables.append(_table("draft", drafts))
    report = Report(
        title=f"{title(spec)}: {worst}",
        headlines=(
            *(_line(each, arm_label(each.across)) for each in gates),
            *(_line(each, f"{arm_label(each.across)}, draft") for each in drafts),
        ),
        facts=run_facts(against, run),
        tables=tuple(tables),
        notes=(
            *machine_notes(against, run),
            *([] if arms else _arms_left_out(run, against)),
            *_drafts_left_out(run, against, chosen),
            *_idle_notes(run, against, chosen),
        ),
        warnings=(*ran_nothing_warnings(against, run), *partial_warnings(against, run)),
    )
    return GateReport(worst, report)


def _refuse_traces(*runs: Run) -> None:
    for run in runs:
        if isinstance(run.header.study.spec, TraceSpec):
            msg = (
                f"{run.path} was made of a trace, which has no anchors to judge by; "
                "layerscope compare shows what was observed"
            )
            raise InputError(msg)


def _worst(outcomes: set[Outcome]) -> Outcome:
    worst_first = (Outcome.FAIL, Outcome.UNKNOWN)
    return next((each for each in worst_first if each in outcomes), Outcome.PASS)


def _arms_left_out(run: Run, against: Run) -> list[str]:
    """A note for each arm that there is nothing to judge by."""
    return [
        f"{arm} is not judged: {against.path} has no such arm"
        for arm in _arms(run)
        if arm not in arm_names(against)
    ]


def _arms(run: Run) -> tuple[str, ...]:
    return tuple(arm for arm in arm_names(run) if not arm.endswith(AA_SUFFIX))


def _draft_gates(
    run: Run, against: Run, allowed: float, arms: tuple[str, ...]
) -> list[Gate]:
    """The gates of the drafts of both runs, of those `arms` that both have."""
    if run.draft is None or against.draft is None:
        return []
    refuse_different(against.draft.header, run.draft.header, _ADVICE)
    known = set(arm_names(run.draft)) & set(arm_names(against.draft))
    return [
        gate(across(against.draft, run.draft, arm, arm), allowed)
        for arm in arms
        if arm in known
    ]


def _drafts_left_out(run: Run, against: Run, arms: tuple[str, ...]) -> Iterator[str]:
    """Drafts that one of the runs lacks: nothing may pass unseen."""
    drafts = {each.path: each.draft for each in (run, against)}
    has = {
        path: () if draft is None else arm_names(draft)
        for path, draft in drafts.items()
    }
    for arm in arms:
        lacking = [path for path, names in has.items() if arm not in names]
        if len(lacking) == 1:
            yield f"the draft of {arm} is not judged: {lacking[0]} has none"


def _idle_notes(run: Run, against: Run, arms: tuple[str, ...]) -> Iterator[str]:
    """Switches of judged arms that change nothing, in the layer and in the draft."""
    pairs = [(arm, arm) for arm in arms]
    yield from idle_notes(against, run, pairs)
    if run.draft is not None and against.draft is not None:
        for line in idle_notes(against.draft, run.draft, pairs):
            yield f"draft: {line}"


def _table(measured: str, gates: list[Gate]) -> Table:
    return Table(
        title=f"{measured}: one pass, not paired",
        columns=(*COLUMNS, *_OUTCOME),
        rows=tuple((*row(each.across), each.outcome, each.reason) for each in gates),
    )


def _line(found: Gate, name: str) -> Fact:
    compared = found.across
    anchors = (
        f"{format_ns(compared.other.value)} against {format_ns(compared.base.value)}"
    )
    is_told = found.outcome is Outcome.UNKNOWN or found.reason == WIDE
    why = f"; {found.reason}" if is_told else ""
    return Fact(
        f"{found.outcome}: {name}",
        f"{anchors}, {change_text(compared)}; "
        f"allowed {format_percent(found.allowed, signed=True)}, "
        f"noise floor {format_ns(compared.floor_ns)}{why}",
    )
