"""Two runs against each other, arm by arm."""

from collections.abc import Collection, Iterator
from typing import Final

from layerscope.analyze.across_runs import AcrossRuns, across
from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.same_work import differences, refuse_different
from layerscope.analyze.statistics import Verdict
from layerscope.errors import InputError
from layerscope.report.arms import arm_names, check_arm, partial_warnings
from layerscope.report.document import Cell, Column, Fact, Interval, Kind, Report, Table
from layerscope.report.fallbacks import idle_switch_notes, ran_nothing
from layerscope.report.observed_runs import compare_observed_runs
from layerscope.report.tables import change_cell, unfused_notes
from layerscope.report.work import noun, title
from layerscope.run import Run
from layerscope.study import AA_SUFFIX
from layerscope.trace_spec import TraceSpec
from layerscope.units import format_estimate

COLUMNS: Final = (
    Column("arm", "arm", Kind.TEXT),
    Column("base_ns", "anchor before", Kind.INTERVAL),
    Column("other_ns", "anchor", Kind.INTERVAL),
    Column("change_ns", "change", Kind.INTERVAL),
    Column("floor_ns", "noise floor", Kind.TIME),
)
_UNPAIRED: Final = (
    "runs are not paired: the errors of their anchors add up, and a difference counts "
    "beyond the noise floors of both"
)


def compare_runs(
    base: Run, other: Run, arms: tuple[str, str] | None = None, *, anyway: bool = False
) -> Report:
    """Arms of run `other` against arms of run `base`, by their anchors.

    Args:
        base: what is compared with.
        other: what is compared.
        arms: one of `base` and one of `other`; None compares all of equal names.
        anyway: whether runs that differ in what matters are compared and marked.

    Raises:
        InputError: the runs differ, an arm is missing, or none is in both.
    """
    if any(isinstance(run.header.study.spec, TraceSpec) for run in (base, other)):
        return compare_observed_runs(base, other, arms, anyway=anyway)
    found = differences(base.header, other.header)
    if not anyway:
        refuse_different(
            base.header, other.header, "--anyway compares them all the same"
        )
    pairs = common_arms(base, other) if arms is None else (arms,)
    if not pairs:
        msg = (
            f"no arm is in both runs: {', '.join(arm_names(base))} against "
            f"{', '.join(arm_names(other))}; pick two with --arms"
        )
        raise InputError(msg)
    for base_arm, other_arm in pairs:
        check_arm(base, base_arm)
        check_arm(other, other_arm)
    return _report(base, other, pairs, tuple(found))


def common_arms(base: Run, other: Run) -> tuple[tuple[str, str], ...]:
    """The arms that two runs share, each beside itself; no A/A arm."""
    names = arm_names(other)
    return tuple(
        (arm, arm)
        for arm in arm_names(base)
        if arm in names and not arm.endswith(AA_SUFFIX)
    )


def arm_label(found: AcrossRuns) -> str:
    """What a comparison is of, in few words."""
    same = found.base_arm == found.other_arm
    return found.base_arm if same else f"{found.other_arm} against {found.base_arm}"


def change_text(found: AcrossRuns) -> str:
    """The change with its interval."""
    change = found.comparison.difference
    return format_estimate(
        change.value, change.low, change.high, found.comparison.relative
    )


def row(found: AcrossRuns) -> tuple[Cell, ...]:
    """A comparison as cells of `COLUMNS`."""
    return (
        arm_label(found),
        _anchor(found.base),
        _anchor(found.other),
        change_cell(found.comparison, is_judged=True),
        found.floor_ns,
    )


def machine_notes(base: Run, other: Run) -> list[str]:
    """What two devices of one kind are worth saying."""
    devices = [run.header.environment.device for run in (base, other)]
    if not all(device.uuid for device in devices):
        return []
    if devices[0].uuid == devices[1].uuid or devices[0].name != devices[1].name:
        return []
    name = devices[0].name
    return [f"the runs are of two devices {name}, which need not be equally fast"]


def ran_nothing_warnings(*runs: Run) -> tuple[str, ...]:
    """A line for every arm of a run that was another backend under its name."""
    return tuple(
        f"{run.path}: {arm} {each.told}"
        for run in runs
        for arm, each in ran_nothing(run.header).items()
        if not arm.endswith(AA_SUFFIX)
    )


def idle_notes(
    base: Run, other: Run, pairs: Collection[tuple[str, str]]
) -> Iterator[str]:
    """Switches of the compared arms that change nothing; where in one run only, of it.

    Args:
        base: what is compared with.
        other: what is compared.
        pairs: arms, each of `base` and of `other`.
    """
    before = [*idle_switch_notes(base.header, [arm for arm, _ in pairs])]
    after = [*idle_switch_notes(other.header, [arm for _, arm in pairs])]
    for line in before:
        yield line if line in after else f"{base.path}: {line}"
    for line in after:
        if line not in before:
            yield f"{other.path}: {line}"


def run_facts(base: Run, other: Run) -> tuple[Fact, ...]:
    """Which two runs are compared."""
    return (
        Fact("before", f"{base.path}, of {base.header.created}"),
        Fact("run", f"{other.path}, of {other.header.created}"),
    )


def _report(
    base: Run,
    other: Run,
    pairs: tuple[tuple[str, str], ...],
    differing: tuple[str, ...],
) -> Report:
    compared = [across(base, other, *pair) for pair in pairs]
    spec = other.header.study.spec
    mark = ", though they differ in work or machine" if differing else ""
    drafts = _drafts(base, other, pairs)
    return Report(
        title=f"{title(spec)}: {other.path} against {base.path}{mark}",
        headlines=tuple(map(_headline, compared)),
        facts=run_facts(base, other),
        tables=(
            Table(
                title=f"{noun(spec)}: one pass, not paired",
                columns=COLUMNS,
                rows=tuple(map(row, compared)),
            ),
        ),
        notes=(
            _UNPAIRED,
            *machine_notes(base, other),
            *dict.fromkeys(
                note for pair in pairs for note in unfused_notes(base.header, pair)
            ),
            *idle_notes(base, other, pairs),
        ),
        warnings=(
            *(f"the runs differ: {each}" for each in differing),
            *ran_nothing_warnings(base, other),
            *partial_warnings(base, other),
        ),
        differences=differing,
        parts=drafts,
    )


def _drafts(
    base: Run, other: Run, pairs: tuple[tuple[str, str], ...]
) -> tuple[Report, ...]:
    """The drafts of both runs against each other, where both have those arms."""
    if base.draft is None or other.draft is None:
        return ()
    names, other_names = arm_names(base.draft), arm_names(other.draft)
    shared = tuple(
        (one, another)
        for one, another in pairs
        if one in names and another in other_names
    )
    if not shared:
        return ()
    differing = differences(base.draft.header, other.draft.header)
    return (_report(base.draft, other.draft, shared, tuple(differing)),)


def _headline(found: AcrossRuns) -> Fact:
    verdict, reason = found.comparison.verdict, found.comparison.reason
    why = f", {reason}" if verdict is Verdict.NO_DIFFERENCE else f": {reason}"
    told = f"{verdict}{why if reason else ''}"
    return Fact(arm_label(found), f"{told}; {change_text(found)}")


def _anchor(found: Estimate) -> Interval | None:
    return Interval(found.value, found.low, found.high) if found.samples else None
