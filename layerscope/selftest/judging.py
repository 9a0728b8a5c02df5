"""Whether a ledger puts a planted change where it was planted."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.causes import Cause, Ledger
from layerscope.analyze.statistics import Comparison, Verdict
from layerscope.selftest.cases import Case, Demand
from layerscope.selftest.mixtures import CAUSES_ADDED
from layerscope.units import format_ns, format_percent

TOLERANCE: Final = 0.05
"""Part of a saving that may be on other lines; also how far apart the marginals of a
mixture and its lines may be, as parts of the change."""

_SMALL_BALANCE: Final = 0.1
"""Part of what lines move that may be left where they should cancel."""

_LITTLE: Final = 0.05
"""Part of a pass that counts as hardly any gain."""

_MISPLACED: Final = 0.01
"""Part of a pass that may be misplaced where there is hardly any gain."""


@dataclass(frozen=True, slots=True)
class Judged:
    """What the ledger of a case was found to be."""

    passed: bool
    share_on_planted: float
    """Part of the change that is on the expected lines; of what lines move, where they
    cancel; NaN where there is nothing to have parts of."""

    text: str
    """What was found, in words."""


def failed(text: str) -> Judged:
    """What was not even measured, or cannot be judged, and why."""
    return Judged(passed=False, share_on_planted=math.nan, text=text)


@dataclass(frozen=True, slots=True)
class Added:
    """One cause of a mixture."""

    name: str
    line_ns: float
    """What the ledger of the mixture says of it."""

    marginal_ns: float
    """What adding it changed."""

    apart: float
    """The first less the second, as a part of the mixture's change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one case or mixture."""

    name: str
    difference: str
    """What the other arm does differently, in words."""

    expected: frozenset[Cause]
    judged: Judged
    change: Comparison | None = None
    """None where the study failed."""

    ledger: Ledger | None = None
    added: tuple[Added, ...] = ()
    """Of a mixture: its causes one by one."""

    warnings: tuple[str, ...] = ()
    """Of its run."""


def judge(case: Case, ledger: Ledger, comparison: Comparison) -> Judged:
    """Whether the change between the arms of `case` is where it was planted.

    A saving must be there, and at least 95 % of it on the expected lines, and no more
    than 105 %: what is too much there is missing elsewhere.

    Args:
        case: what was planted.
        ledger: of its arms.
        comparison: of their anchors, against the noise floor.
    """
    if case.demand is Demand.NOTHING:
        verdict = comparison.verdict
        return Judged(verdict is Verdict.NO_DIFFERENCE, math.nan, verdict)
    why = _unusable(ledger)
    if why:
        return failed(why)
    match case.demand:
        case Demand.BALANCE:
            return _balance(case, ledger)
        case Demand.LITTLE:
            return _little(case, ledger)
    return _saving(case, ledger, comparison)


def judge_mixture(
    ledger: Ledger, marginals: Mapping[str, Estimate]
) -> tuple[Judged, tuple[Added, ...]]:
    """Whether each cause of a mixture gets what adding it changed, within 5 points.

    Args:
        ledger: from the arm before the first cause to that with all of them.
        marginals: what adding each changed, by its name in `CAUSES_ADDED`, in ns.

    Returns:
        The verdict, and the causes one by one.
    """
    why = _unusable(ledger)
    if why:
        return failed(why), ()
    change_ns = ledger.change.value
    added = []
    for name, marginal in marginals.items():
        line_ns = _sum_ns(ledger, CAUSES_ADDED[name])
        apart = _part(line_ns - marginal.value, change_ns)
        added.append(Added(name, line_ns, marginal.value, apart))
    expected = frozenset[Cause]().union(*(CAUSES_ADDED[name] for name in marginals))
    share = _part(_sum_ns(ledger, expected), change_ns)
    # Not "apart > TOLERANCE": NaN must not pass.
    wrong = [one for one in added if not abs(one.apart) <= TOLERANCE]
    text = ", ".join(f"{o.name} {format_percent(o.apart, signed=True)}" for o in added)
    return Judged(not wrong, share, f"line less marginal: {text}"), tuple(added)


def _saving(case: Case, ledger: Ledger, comparison: Comparison) -> Judged:
    change_ns = ledger.change.value
    share = _part(_sum_ns(ledger, case.expected), change_ns)
    if comparison.verdict is not Verdict.FASTER:
        found = f"the planted saving was not found: {comparison.verdict}"
        return Judged(passed=False, share_on_planted=share, text=found)
    passed = 1.0 - TOLERANCE <= share <= 1.0 + TOLERANCE
    return Judged(passed, share, _elsewhere(case, ledger))


def _balance(case: Case, ledger: Ledger) -> Judged:
    change_ns = ledger.change.value
    moved_ns = sum(abs(_sum_ns(ledger, {cause})) for cause in case.expected) / 2
    missed_ns = abs(change_ns - _sum_ns(ledger, case.expected))
    share = 1.0 - missed_ns / moved_ns if moved_ns else math.nan
    text = (
        f"{format_ns(moved_ns)} moved between them, "
        f"{format_ns(change_ns, signed=True)} left"
    )
    passed = (
        share >= 1.0 - TOLERANCE
        and moved_ns >= _LITTLE * ledger.base_ns
        and abs(change_ns) <= _SMALL_BALANCE * moved_ns
    )
    return Judged(passed, share, text)


def _little(case: Case, ledger: Ledger) -> Judged:
    change_ns, line_ns = ledger.change.value, _sum_ns(ledger, case.expected)
    gain = _part(line_ns, ledger.base_ns)
    hidden_ns = ledger.hidden.get(ledger.other, math.nan)
    text = (
        f"overlap {format_percent(gain, signed=True)} of the pass, while "
        f"{format_ns(hidden_ns)} of it are hidden"
    )
    passed = (
        abs(gain) <= _LITTLE
        and abs(change_ns) <= _LITTLE * ledger.base_ns
        and abs(change_ns - line_ns) <= _MISPLACED * ledger.base_ns
    )
    return Judged(passed, _part(line_ns, change_ns), text)


def _unusable(ledger: Ledger) -> str:
    """Why nothing can be judged; empty where it can."""
    if ledger.unknown:
        return f"unknown: {ledger.unknown}"
    if ledger.basis != "experiments":
        return "; ".join(("not by experiments", *ledger.notes))
    return ""


def _elsewhere(case: Case, ledger: Ledger) -> str:
    """The largest part of the change that is not on the expected lines."""
    others = [(line.cause.value, line.change.value) for line in ledger.lines]
    others = [(name, ns) for name, ns in others if name not in case.expected]
    name, largest_ns = max(
        (*others, ("residual", ledger.residual.value)), key=lambda one: abs(one[1])
    )
    return f"most elsewhere: {name} {format_ns(largest_ns, signed=True)}"


def _sum_ns(ledger: Ledger, causes: frozenset[Cause] | set[Cause]) -> float:
    return sum(line.change.value for line in ledger.lines if line.cause in causes)


def _part(value: float, whole: float) -> float:
    return value / whole if whole else math.nan
