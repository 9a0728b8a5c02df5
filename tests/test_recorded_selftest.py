"""What the self-test says of its own runs on an H200, as recorded.

Two of them had plants that were not what they seemed, and fail; the cases now plant
otherwise. The runs stay as they were recorded, for they show that judging notices.
"""

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
    """What is found of the recorded run of a case."""
    run = load(RUNS / name)
    times = pass_times(run.samples)
    change = compare(times, BASE, OTHER, noise_floor(times, BASE, f"{BASE}{AA_SUFFIX}"))
    return judge(case or BY_NAME[name], ledger(run, BASE, OTHER), change)


@pytest.mark.parametrize(
    ("name", "percent"),
    [
        ("trigger", 99.4),
        ("early", 99.5),
        ("branches", 100.4),
        ("merge", 103.3),
        ("less", 100.5),
        ("swap", 101.8),
        ("fewer", 98.6),
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


def test_the_gap_of_an_event_is_not_what_records_say() -> None:
    """The base had an event between two kernels, not empty nodes.

    Without the event a pass takes 4.72 µs less, and the gap in the records is 5.72 µs
    shorter: a profiler lengthens the gap across an event's node by 1 µs, which is not
    the cost of a record that is subtracted. The residual shows it.
    """
    found = judged("gap")
    assert not found.passed
    assert round(100 * found.share_on_planted, 1) == 121.3
    assert found.text == "most elsewhere: residual +1.256 µs"
    lines = ledger(load(RUNS / "gap"), BASE, OTHER)
    (gaps,) = (line for line in lines.lines if line.cause is Cause.GAPS)
    assert (round(lines.change.value), round(gaps.change.value)) == (-4718, -5723)


def test_a_base_that_is_slower_for_being_programmatic_is_noticed() -> None:
    """Kernels of the base triggered at their ends; now they are plain.

    So launched, two large reads took 156 µs, and one after the other in the serial twin
    144 µs. Against that base an early start, which takes 141 µs, gains 9.8 %, where
    kernels that wait for memory can gain hardly anything.
    """
    found = judged("bandwidth")
    assert not found.passed
    assert found.text == (
        "overlap −9.84 % of the pass, while 140.0 µs of it are hidden"
    )
    corners = ledger(load(RUNS / "bandwidth"), BASE, OTHER).corners
    assert corners is not None
    times = (corners.base, corners.base_serial, corners.other, corners.other_serial)
    assert [round(one.value / 1e3, 1) for one in times] == [155.9, 144.2, 140.6, 144.2]
