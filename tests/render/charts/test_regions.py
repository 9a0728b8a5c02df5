from dataclasses import replace

from layerscope.render import charts
from tests import handmade
from tests.render.charts.specs import drawn, only, rows_of

BARS, ANCHORS = range(2)


def test_shares_lie_one_after_another_and_add_up() -> None:
    """Kernels, then gaps, of each region; the end is the profiled pass."""
    rows = rows_of(drawn(charts.shares(handmade.run())), BARS)
    fused = [row for row in rows if row["arm"] == "fused"]
    assert only(fused, "region", "from", "to", "opacity") == [
        ("attention", 0, 15_000, 1.0),
        ("attention", 15_000, 16_000, 0.35),
        ("o-proj + all-reduce", 16_000, 20_000, 1.0),
        ("o-proj + all-reduce", 20_000, 20_000, 0.35),
        ("MoE", 20_000, 30_000, 1.0),
        ("MoE", 30_000, 30_500, 0.35),
    ]


def test_tooltips_tell_what_the_table_of_regions_tells() -> None:
    """Kernels, share, gap, sum and hidden, with units."""
    spec = drawn(charts.shares(handmade.run()))
    told = [each["field"] for each in spec["layer"][BARS]["encoding"]["tooltip"]]
    rows = [
        row
        for row in rows_of(spec, BARS)
        if row["arm"] == "fused" and row["region"].startswith("o-proj")
    ]
    assert only(rows[:1], *told) == [
        (
            *("fused", "o-proj + all-reduce", "1", "4.000 µs", "13.1 %"),
            *("0 ns", "5.000 µs", "1.000 µs"),
        )
    ]


def test_every_arm_has_its_anchor() -> None:
    """What a pass takes without a profiler stands on the bar, the A/A arm's too."""
    rows = rows_of(drawn(charts.shares(handmade.run())), ANCHORS)
    assert only(rows, "arm", "at", "told") == [
        ("reference", 40_000, "40.00 µs (40.00 … 40.00)"),
        ("fused", 30_000, "30.00 µs (30.00 … 30.00)"),
        ("reference (A/A)", 40_100, "40.10 µs (40.10 … 40.10)"),
    ]


def test_without_kernels_there_is_no_chart() -> None:
    """Where nothing was recorded there are no shares."""
    made = handmade.run()
    assert charts.shares(replace(made, kernels=made.kernels.clear())) is None
