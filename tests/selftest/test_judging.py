import math

import pytest

from layerscope.analyze.causes import Cause
from layerscope.analyze.statistics import Verdict
from layerscope.selftest.cases import CASES, Case
from layerscope.selftest.judging import Judged, judge, judge_mixture
from layerscope.selftest.mixtures import FUSION_ADDED, OVERLAP_ADDED, WORK
from tests.selftest.ledgers import comparison, exactly, ledger


def case(name: str) -> Case:
    """The case of that name."""
    return next(one for one in CASES if one.name == name)


@pytest.mark.parametrize(
    ("on_overlap_us", "passed", "share"),
    [
        (-9.5, True, 0.95),
        (-9.4, False, 0.94),
        (-10.5, True, 1.05),
        (-10.6, False, 1.06),
    ],
)
def test_a_saving_passes_with_95_percent_where_it_was_planted(
    on_overlap_us: float, share: float, *, passed: bool
) -> None:
    """What the expected line has too little of or too much is elsewhere."""
    found = ledger(-10.0, {Cause.OVERLAP: on_overlap_us, Cause.SAME: -0.1})
    judged = judge(case("trigger"), found, comparison(-10.0))
    assert judged.passed is passed
    assert judged.share_on_planted == pytest.approx(share)


def test_a_saving_may_land_on_several_lines() -> None:
    """Merging kernels saves gaps and durations; their sum counts."""
    lines = {Cause.LAUNCHES: -4.0, Cause.MERGED: -5.9, Cause.GAPS: 0.3}
    assert judge(case("merge"), ledger(-10.0, lines), comparison(-10.0)) == Judged(
        passed=True,
        share_on_planted=0.99,
        text="most elsewhere: residual −400 ns",
    )
    assert not judge(case("less"), ledger(-10.0, lines), comparison(-10.0)).passed


def test_where_the_rest_went_is_told() -> None:
    """The largest of the other lines and the residual is named."""
    found = ledger(-10.0, {Cause.FASTER: -7.0, Cause.GAPS: -3.5})
    judged = judge(case("swap"), found, comparison(-10.0))
    assert (judged.passed, judged.share_on_planted) == (False, 0.7)
    assert judged.text == "most elsewhere: shorter gaps −3.500 µs"


@pytest.mark.parametrize("verdict", [Verdict.NO_DIFFERENCE, Verdict.SLOWER])
def test_a_saving_that_is_not_found_fails(verdict: Verdict) -> None:
    """Even if the ledger would put all of it in the right place."""
    found = ledger(-10.0, {Cause.GAPS: -10.0})
    judged = judge(case("gap"), found, comparison(-10.0, verdict))
    assert not judged.passed
    assert judged.text == f"the planted saving was not found: {verdict}"


@pytest.mark.parametrize(
    ("change_us", "launches_us", "merged_us", "passed"),
    [
        (0.0, -20.0, 20.0, True),
        (1.0, -19.5, 20.5, True),
        (0.0, -20.0, 18.5, False),  # too much in the residual
        (3.0, -17.0, 20.0, False),  # they do not take the same time
        (0.0, -1.0, 1.0, False),  # nothing moved
        (0.0, 0.0, 0.0, False),
    ],
)
def test_what_cancels_must_be_there_on_both_lines(
    change_us: float, launches_us: float, merged_us: float, *, passed: bool
) -> None:
    """Fewer kernels that take as long: gaps became durations, and that is told."""
    lines = {Cause.LAUNCHES: launches_us, Cause.MERGED: merged_us}
    change = comparison(change_us, Verdict.NO_DIFFERENCE)
    assert judge(case("fewer"), ledger(change_us, lines), change).passed is passed


@pytest.mark.parametrize(
    ("change_us", "lines_us", "passed"),
    [
        (-2.0, {Cause.OVERLAP: -2.5}, True),
        (0.0, {Cause.OVERLAP: 0.0}, True),
        (-6.0, {Cause.OVERLAP: -6.0}, False),  # a gain after all
        (-2.0, {Cause.OVERLAP: -40.0, Cause.SAME: 38.0}, False),  # hidden is no gain
        (-2.0, {Cause.SAME: -2.0}, False),
    ],
)
def test_overlap_without_a_gain_is_told_as_none(
    change_us: float, lines_us: dict[Cause, float], *, passed: bool
) -> None:
    """However much of the time is hidden, the line is what was saved."""
    judged = judge(
        case("bandwidth"), ledger(change_us, lines_us), comparison(change_us)
    )
    assert judged.passed is passed
    assert judged.text.endswith("of the pass, while 40.00 µs of it are hidden")


@pytest.mark.parametrize("verdict", list(Verdict))
def test_nothing_must_be_no_difference(verdict: Verdict) -> None:
    """An unknown is not that either; the ledger does not matter."""
    judged = judge(case("nothing"), ledger(0.1, {}), comparison(0.1, verdict))
    assert judged.passed is (verdict is Verdict.NO_DIFFERENCE)
    assert judged.text == verdict
    assert math.isnan(judged.share_on_planted)


@pytest.mark.parametrize("name", ["trigger", "fewer", "bandwidth"])
def test_a_ledger_that_does_not_know_fails(name: str) -> None:
    """Its reason is told."""
    found = ledger(-1.0, {}, unknown="clock: held down by sync boost", lines=())
    judged = judge(case(name), found, comparison(-1.0))
    assert not judged.passed
    assert judged.text == "unknown: clock: held down by sync boost"


def test_an_observed_ledger_fails() -> None:
    """What records alone say is not what is to be proven."""
    found = ledger(
        -10.0, {Cause.GAPS: -10.0}, basis="observed", notes=("there is no twin",)
    )
    judged = judge(case("gap"), found, comparison(-10.0))
    assert not judged.passed
    assert judged.text == "not by experiments; there is no twin"


LINES = {
    Cause.OVERLAP: -6.0,
    Cause.LAUNCHES: -2.0,
    Cause.MERGED: -1.5,
    Cause.ADDED: -0.5,
    Cause.FASTER: -10.0,
}


@pytest.mark.parametrize(
    ("work_us", "fusion_us", "overlap_us", "passed"),
    [
        (-10.0, -4.0, -6.0, True),
        (-9.1, -4.9, -6.0, True),  # 4.5 points apart
        (-10.0, -2.9, -7.1, False),  # 5.5 points apart
    ],
)
def test_causes_of_a_mixture_match_what_adding_them_changed(
    work_us: float, fusion_us: float, overlap_us: float, *, passed: bool
) -> None:
    """Within 5 points of the change, each of them."""
    marginals = {
        WORK: exactly(work_us),
        FUSION_ADDED: exactly(fusion_us),
        OVERLAP_ADDED: exactly(overlap_us),
    }
    judged, added = judge_mixture(ledger(-20.0, LINES), marginals)
    assert judged.passed is passed
    assert judged.share_on_planted == pytest.approx(1.0)
    assert [(one.name, one.line_ns, one.marginal_ns) for one in added] == [
        ("work", -10_000.0, 1_000 * work_us),
        ("fusion", -4_000.0, 1_000 * fusion_us),
        ("overlap", -6_000.0, 1_000 * overlap_us),
    ]
    assert [one.apart for one in added] == pytest.approx(
        [(10 + work_us) / 20, (4 + fusion_us) / 20, (6 + overlap_us) / 20]
    )


def test_a_mixture_that_is_not_known_fails() -> None:
    """Without causes, for there is nothing to compare."""
    found = ledger(-20.0, LINES, unknown="clock")
    judged, added = judge_mixture(found, {WORK: exactly(-20.0)})
    assert (judged.passed, judged.text, added) == (False, "unknown: clock", ())


def test_a_mixture_without_a_change_fails() -> None:
    """Parts of nothing are no parts."""
    judged, _ = judge_mixture(ledger(0.0, {}), {WORK: exactly(0.0)})
    assert not judged.passed
