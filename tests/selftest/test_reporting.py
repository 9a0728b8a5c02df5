import math

from layerscope.analyze.causes import Cause
from layerscope.environment import DeviceFacts
from layerscope.report import Interval
from layerscope.selftest.judging import Added, Judged, Outcome, failed
from layerscope.selftest.plan import NAMES
from layerscope.selftest.reporting import cases_report, outcomes_report
from tests.selftest.ledgers import comparison, ledger

DEVICE = DeviceFacts(type="cuda", name="Paper GPU", architecture="sm_90", driver="580")
PASSED = Outcome(
    name="merge",
    difference="two kernels are one",
    expected=frozenset({Cause.MERGED, Cause.LAUNCHES}),
    judged=Judged(passed=True, share_on_planted=0.99, text="fine"),
    change=comparison(-10.0),
    ledger=ledger(-10.0, {Cause.MERGED: -9.9}),
    warnings=("it was late",),
)
NOTHING = Outcome(
    name="nothing",
    difference="nothing",
    expected=frozenset(),
    judged=Judged(passed=True, share_on_planted=math.nan, text="no difference"),
    warnings=("it was late", "it was late"),
)
FAILED = Outcome(
    name="work + fusion",
    difference="work, then fusion added",
    expected=frozenset({Cause.FASTER}),
    judged=failed("out of order"),
    added=(Added("work", -4_000.0, -5_000.0, 0.1),),
)


def test_every_study_is_listed() -> None:
    """With what differs, and where that is expected."""
    (table,) = cases_report().tables
    assert [row[0] for row in table.rows] == [*NAMES]
    rows = {row[0]: row[2] for row in table.rows}
    assert rows["merge"] == "fewer launches + merged or split"
    assert rows["nothing"] is None


def test_outcomes_are_rows() -> None:
    """Numbers are raw; what there is none of is empty."""
    report = outcomes_report([PASSED, NOTHING, FAILED], DEVICE)
    assert report.title == "selftest: 2 of 3 passed"
    assert [fact.text for fact in report.facts] == ["Paper GPU, sm_90", "580"]
    outcomes, mixtures = report.tables
    change = Interval(-10_000.0, -10_000.0, -10_000.0, -0.1)
    on = "fewer launches + merged or split"
    residual_ns = outcomes.rows[0][4]
    assert isinstance(residual_ns, float)
    assert round(residual_ns) == -100
    assert outcomes.rows == (
        ("merge", change, on, 99.0, residual_ns, "pass", "fine"),
        ("nothing", None, None, None, None, "pass", "no difference"),
        ("work + fusion", None, "faster kernels", None, None, "FAIL", "out of order"),
    )
    assert mixtures.rows == (("work + fusion", "work", -4_000.0, -5_000.0, 10.0),)
    assert report.warnings == ("merge: it was late", "nothing: it was late")


def test_without_mixtures_there_is_one_table() -> None:
    """A table without rows is left out."""
    assert len(outcomes_report([PASSED], DEVICE).tables) == 1
