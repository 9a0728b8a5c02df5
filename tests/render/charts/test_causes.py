from dataclasses import replace

import pytest

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.causes import Ledger
from layerscope.analyze.ledger import ledger
from layerscope.render import charts
from tests import edited, handmade
from tests.render.charts.specs import drawn, only, rows_of

RULES, BARS, WHISKERS, LEFT, RIGHT = range(5)


@pytest.fixture(scope="module")
def found() -> Ledger:
    """What the hand-made run says of its two arms, by experiments."""
    return ledger(edited.run(), "reference", "fused")


def test_causes_lead_from_one_arm_to_the_other(found: Ledger) -> None:
    """Each bar begins where the one above ends; the last is the whole change."""
    rows = rows_of(drawn(charts.ledger(found)), BARS)
    *causes, change = rows
    assert [row["name"] for row in causes] == [
        *(line.cause.value for line in found.lines),
        "residual",
    ]
    assert [row["from"] for row in causes] == pytest.approx(
        [40_000, *(row["to"] for row in causes[:-1])]
    )
    assert causes[-1]["to"] == pytest.approx(30_000)
    assert only([change], "name", "from", "to") == [("change", 40_000, 30_000)]


def test_what_is_told_is_the_estimate_with_its_interval(found: Ledger) -> None:
    """Overlap saves 4 µs of 40; the same text stands beside the bar."""
    spec = drawn(charts.ledger(found))
    first = rows_of(spec, BARS)[0]
    assert first["told"] == "−4.00 µs (−10.0 %, 95 % −4.00 … −4.00)"
    beside = spec["layer"][WHISKERS]["encoding"]["y"]["axis"]
    assert beside["orient"] == "right"
    assert first["told"] in beside["labelExpr"]


def test_colours_follow_the_sign_where_it_is_certain(found: Ledger) -> None:
    """Faster and slower are causes whose interval excludes zero; a residual is none."""

    def kind(low: float, value: float, high: float) -> str:
        line = replace(found.lines[0], change=Estimate(value, low, high, 9, 9.0))
        spec = drawn(charts.ledger(replace(found, lines=(line,))))
        told: str = rows_of(spec, BARS)[0]["kind"]
        return told

    assert kind(-3, -2, -1) == "faster"
    assert kind(1, 2, 3) == "slower"
    assert kind(-1, 2, 3) == "neither"
    assert rows_of(drawn(charts.ledger(found)), BARS)[-2]["kind"] == "neither"


def test_both_arms_are_named_outwards(found: Ledger) -> None:
    """Names of arms that are close do not run into each other."""
    spec = drawn(charts.ledger(found))
    names = [
        (rows_of(spec, layer)[0]["arm"], spec["layer"][layer]["mark"]["align"])
        for layer in (LEFT, RIGHT)
    ]
    assert names == [("fused", "right"), ("reference", "left")]


def test_what_cannot_be_attributed_says_why(found: Ledger) -> None:
    """The change stands alone, and the reason above it."""
    unknown = replace(found, lines=(), residual=found.change, unknown="clock: moved")
    spec = drawn(charts.ledger(unknown))
    assert [row["name"] for row in rows_of(spec, BARS)] == ["change"]
    assert spec["title"]["subtitle"] == ["nothing can be attributed: clock: moved"]


def test_ends_that_are_not_known_are_left_out(found: Ledger) -> None:
    """The interval of one round has no ends, which JSON could not tell."""
    inf = float("inf")
    change = Estimate(-10_000.0, -inf, inf, 1, 1.0)
    spec = drawn(charts.ledger(replace(found, lines=(), change=change)))
    assert only(rows_of(spec, BARS), "low", "high") == [(None, None)]


def test_without_a_common_round_there_is_no_chart(found: Ledger) -> None:
    """A change that is not a number is not drawn."""
    nan = float("nan")
    change = Estimate(nan, -nan, nan, 0, 0.0)
    assert charts.ledger(replace(found, change=change)) is None


def test_an_observed_ledger_starts_from_the_profiled_pass() -> None:
    """Without experiments, the base is the record's 41 µs."""
    spec = drawn(charts.ledger(ledger(handmade.run(), "reference", "fused")))
    ends = {row["arm"]: row["at"] for row in rows_of(spec, RULES)}
    assert ends == {"reference": 41_000, "fused": 30_500}
