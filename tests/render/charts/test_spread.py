from dataclasses import replace

import polars as pl
import pytest

from layerscope.render import charts
from tests import handmade
from tests.render.charts.specs import drawn, only, rows_of

ROUNDS, INTERVALS, MIDDLES = range(3)


def test_rounds_stand_against_the_anchor_of_their_arm() -> None:
    """Without noise all are at 0, but the A/A arm, which stands against the first."""
    rows = rows_of(drawn(charts.samples(handmade.run())), ROUNDS)
    assert len(rows) == 3 * handmade.CAPTURES * handmade.ROUNDS
    parts = {row["arm"]: row["part"] for row in rows}
    assert parts == pytest.approx(
        {"reference": 0.0, "fused": 0.0, "reference (A/A)": 0.0025}
    )
    again = [row for row in rows if row["arm"] == "reference (A/A)"]
    assert only(again[:1], "capture", "round", "time", "told") == [
        (0, 0, "40.10 µs", "+0.25 %")
    ]


def test_a_capture_is_a_line_in_the_row_of_its_arm() -> None:
    """Three captures lie evenly around the middle of the row."""
    rows = rows_of(drawn(charts.samples(handmade.run())), ROUNDS)
    levels = {
        (row["arm"], row["capture"]): row["level"]
        for row in rows
        if row["arm"] != "reference"
    }
    third = 0.64 / 3
    assert levels == pytest.approx(
        {
            ("fused", 0): 1 - third,
            ("fused", 1): 1,
            ("fused", 2): 1 + third,
            ("reference (A/A)", 0): 2 - third,
            ("reference (A/A)", 1): 2,
            ("reference (A/A)", 2): 2 + third,
        }
    )


def test_anchors_are_told_with_their_intervals() -> None:
    """Beside the row the anchor; in the tooltip its interval too."""
    spec = drawn(charts.samples(handmade.run()))
    label = spec["layer"][ROUNDS]["encoding"]["y"]["axis"]["labelExpr"]
    assert label == (
        '[["reference","40.00 µs"],["fused","30.00 µs"],["reference (A/A)",'
        '"40.10 µs"]][datum.value]'
    )
    assert rows_of(spec, INTERVALS)[2]["told"] == "40.10 µs (40.10 … 40.10)"


def test_an_arm_whose_first_was_not_sampled_stands_against_itself() -> None:
    """The A/A arm alone has no other anchor than its own."""
    made = handmade.run()
    alone = made.samples.filter(pl.col("arm") == "reference (A/A)")
    rows = rows_of(drawn(charts.samples(replace(made, samples=alone))), ROUNDS)
    assert {row["part"] for row in rows} == {0.0}


def test_without_samples_there_is_no_chart() -> None:
    """Where no whole round was sampled there is no scatter."""
    made = handmade.run()
    assert charts.samples(replace(made, samples=made.samples.clear())) is None
