"""What the self-test says of its own runs on an H200, as recorded."""

from dataclasses import replace
from pathlib import Path

import pytest

from layerscope.analyze.causes import Cause
from layerscope.analyze.ledger import ledger
from layerscope.analyze.statistics import compare, noise_floor, pass_times
from layerscope.run import load
from layerscope.selftest.cases import BASE, CASES, OTHER, Case
from layerscope.selftest.judging import Judged, judge
from layerscope.study import AA_SUFFIX

RUNS = Path(__file__).parent.parent / "fixtures" / "h200-selftest"
BY_NAME = {case.name: case for case in CASES}


def judged(name: str, case: Case | None = None) -> Judged:
    """What is found of the recorded run of a case, judged as `case`."""
    run = load(RUNS / name)
    times = pass_times(run.samples)
    change = compare(times, BASE, OTHER, noise_floor(times, BASE, f"{BASE}{AA_SUFFIX}"))
    return judge(case or BY_NAME[name], ledger(run, BASE, OTHER), change)


@pytest.mark.parametrize(
    ("name", "percent"),
    [
        ("trigger", 98.6),
        ("early", 97.7),
        ("branches", 100.4),
        ("merge", 100.3),
        ("less", 101.1),
        ("swap", 100.6),
        ("gap", 102.3),
        ("fewer", 96.6),
        ("bandwidth", 99.1),
    ],
)
def test_what_was_planted_is_on_its_lines(name: str, percent: float) -> None:
    """At least 95 % of the change, and no more than 105 %.

    Of ``fewer``, whose lines cancel, it is a part of what they move.
    """
    found = judged(name)
    assert found.passed, found.text
    assert round(100 * found.share_on_planted, 1) == percent


def test_nothing_is_no_difference() -> None:
    """Two captures of one arm under two names."""
    found = judged("nothing")
    assert (found.passed, found.text) == (True, "no difference")


@pytest.mark.parametrize(
    ("name", "expected"), [("gap", Cause.LAUNCHES), ("less", Cause.OVERLAP)]
)
def test_a_change_on_other_lines_than_planted_is_no_pass(
    name: str, expected: Cause
) -> None:
    """Judged as if the cause were another, a recorded case fails."""
    case = replace(BY_NAME[name], expected=frozenset({expected}))
    assert not judged(name, case).passed


def test_what_a_profiler_adds_to_a_gap_is_left_over() -> None:
    """A gap is longer in records, by more than what a record of a kernel costs."""
    found = ledger(load(RUNS / "gap"), BASE, OTHER)
    (gaps,) = (line for line in found.lines if line.cause is Cause.GAPS)
    assert (round(found.change.value), round(gaps.change.value)) == (-11735, -12002)
    assert round(found.residual.value) == 442
