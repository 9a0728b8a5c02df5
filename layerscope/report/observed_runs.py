"""Traces against each other, or against runs: what was observed, and nothing more."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from layerscope.analyze.same_work import observed_differences
from layerscope.errors import InputError
from layerscope.report.arms import arm_names, check_arm, partial_warnings
from layerscope.report.document import Fact, Report
from layerscope.report.observed import device_text, other_warnings, untrusted
from layerscope.report.observed_pairs import Side, pair_of, pair_report
from layerscope.report.work import title
from layerscope.run import Run
from layerscope.study import AA_SUFFIX
from layerscope.trace_spec import TraceSpec

_SUFFIXES: Final = (
    *(".json", ".csv", ".sqlite", ".db", ".pftrace", ".trace", ".pt"),
    *(".gz", ".zst", ".zip"),
)
"""Endings of files that say nothing in the name of an arm."""

_ADVICE = "--anyway compares them all the same"
_UNKNOWN_WORK = (
    "a trace does not tell its work: whether both had the same model, batch and "
    "context, only you know"
)


def compare_observed_arms(run: Run, arms: tuple[str, str]) -> Report:
    """Two arms of a run that was made of a trace.

    Args:
        run: what holds both.
        arms: two of its names, which have been checked.
    """
    base, other = (Side(run, arm, arm) for arm in arms)
    pair = pair_of(base, other)
    report = pair_report(
        f"{title(run.header.study.spec)}: {other.name} against {base.name}, observed",
        (pair,),
        (Fact("run", str(run.path)), Fact("device", device_text(run.header))),
    )
    warnings = run.header.warnings
    return replace(
        report,
        headlines=(*untrusted(warnings), *report.headlines),
        warnings=(*partial_warnings(run), *other_warnings(warnings)),
    )


def compare_observed_runs(
    base: Run, other: Run, arms: tuple[str, str] | None = None, *, anyway: bool = False
) -> Report:
    """Arms of two runs of which at least one was made of a trace.

    Args:
        base: what is compared with.
        other: what is compared.
        arms: one of `base` and one of `other`; None compares all of equal names, or
            the one and the other where each run has a single arm.
        anyway: whether runs that differ in what matters are compared and marked.

    Raises:
        InputError: the runs differ, an arm is missing, or none is in both.
    """
    pairs = _pairs(base, other) if arms is None else (arms,)
    for base_arm, other_arm in pairs:
        check_arm(base, base_arm)
        check_arm(other, other_arm)
    differing = observed_differences(base.header, other.header, pairs)
    if differing and not anyway:
        named = "; ".join(differing)
        msg = f"they differ in work or machine: {named}; {_ADVICE}"
        raise InputError(msg)
    names = _names(base, other)
    mark = ", though they differ in work or machine" if differing else ""
    report = pair_report(
        f"{names[1]} against {names[0]}, observed{mark}",
        tuple(
            pair_of(
                Side(base, one, f"{one} of {names[0]}"),
                Side(other, another, f"{another} of {names[1]}"),
            )
            for one, another in pairs
        ),
        tuple(_facts(base, other)),
    )
    return replace(
        report,
        headlines=(
            *_untrusted(base, names[0]),
            *_untrusted(other, names[1]),
            *report.headlines,
        ),
        notes=(*report.notes, _UNKNOWN_WORK, *_left_out(base, other, pairs, names)),
        warnings=(
            *(f"they differ: {each}" for each in differing),
            *partial_warnings(base, other),
            *_own_warnings(base, names[0]),
            *_own_warnings(other, names[1]),
        ),
        differences=tuple(differing),
    )


def _pairs(base: Run, other: Run) -> tuple[tuple[str, str], ...]:
    """The arms that are compared where nobody named some.

    Raises:
        InputError: there are none.
    """
    names, others = (
        [name for name in arm_names(run) if not name.endswith(AA_SUFFIX)]
        for run in (base, other)
    )
    shared = tuple((name, name) for name in names if name in others)
    if shared or len(names) == len(others) == 1:
        return shared or ((names[0], others[0]),)
    msg = (
        f"no arm is in both: {', '.join(names)} against {', '.join(others)}; pick two "
        "with --arms"
    )
    raise InputError(msg)


def _names(base: Run, other: Run) -> tuple[str, str]:
    """What the two are called: by file or folder, in full where those are equal."""
    short = tuple(_name(run) for run in (base, other))
    if short[0] != short[1]:
        return short[0], short[1]
    return str(base.path), str(other.path)


def _name(run: Run) -> str:
    spec = run.header.study.spec
    if not (isinstance(spec, TraceSpec) and len(spec.files) == 1):
        return run.path.name or str(run.path)
    name = Path(spec.files[0])
    while name.suffix in _SUFFIXES:
        name = name.with_suffix("")
    return str(name)


def _facts(base: Run, other: Run) -> Iterator[Fact]:
    for label, run in (("before", base), ("run", other)):
        yield Fact(label, f"{run.path}: {title(run.header.study.spec)}")
    for label, run in (("device before", base), ("device", other)):
        yield Fact(label, device_text(run.header))


def _left_out(
    base: Run, other: Run, pairs: tuple[tuple[str, str], ...], names: tuple[str, str]
) -> Iterator[str]:
    """Arms that are in one of the two alone."""
    for run, name, place in zip((base, other), names, (0, 1), strict=True):
        used = {pair[place] for pair in pairs}
        lacking = [
            arm
            for arm in arm_names(run)
            if arm not in used and not arm.endswith(AA_SUFFIX)
        ]
        if lacking:
            yield f"not compared, of {name} alone: {', '.join(lacking)}"


def _own_warnings(run: Run, name: str) -> Iterator[str]:
    """What is known against a trace; measured runs tell theirs where they are shown."""
    if isinstance(run.header.study.spec, TraceSpec):
        own = other_warnings(run.header.warnings)
        yield from (f"{name}: {warning}" for warning in own)


def _untrusted(run: Run, name: str) -> Iterator[Fact]:
    if isinstance(run.header.study.spec, TraceSpec):
        yield from untrusted(run.header.warnings, name)
