from dataclasses import replace

import msgspec

from layerscope.render import charts
from tests import edited, handmade
from tests.render.charts.specs import drawn, only, rows_of

BARS, WHISKERS, RULES = range(3)


def test_bounds_are_bars_and_anchors_lines_across_them() -> None:
    """Bars from 0 with their intervals; arms where their anchors are."""
    spec = drawn(charts.limits(edited.run()))
    assert only(rows_of(spec, BARS), "chain", "bound", "from", "to", "low", "high") == [
        ("standard chain", "no PDL", 0, 20_000, 19_900, 20_100),
        ("standard chain", "legal early start", 0, 12_000, 11_900, 12_100),
        ("standard chain", "one read", 0, 8_000, 7_900, 8_100),
    ]
    assert only(rows_of(spec, RULES), "arm", "at") == [
        ("reference", 40_000),
        ("fused", 30_000),
    ]


def test_tooltips_tell_how_far_the_arms_are() -> None:
    """The anchor of every arm over the bound; of its own kernels, only that arm's."""
    own = [*edited.BOUNDS, msgspec.structs.replace(edited.BOUNDS[0], arm="fused")]
    rows = rows_of(drawn(charts.limits(edited.run(bounds=own))), BARS)
    assert only([rows[0], rows[3]], "told", "work", "ratios") == [
        (
            "20.00 µs (19.90 … 20.10)",
            "6.000 MB by 3 kernels",
            "reference 2.00, fused 1.50",
        ),
        ("20.00 µs (19.90 … 20.10)", "6.000 MB by 3 kernels", "fused 1.50"),
    ]


def test_names_of_arms_have_lines_of_their_own() -> None:
    """Anchors may be close to each other; their names stand above one another."""
    spec = drawn(charts.limits(edited.run()))
    assert [layer["mark"]["dy"] for layer in spec["layer"][RULES + 1 :]] == [-4, -20]


def test_without_bounds_there_is_no_chart() -> None:
    """A run of which no bound was measured has none."""
    assert charts.limits(handmade.run()) is None


def test_without_anchors_bounds_stand_alone() -> None:
    """No line is drawn from nothing."""
    made = edited.run()
    alone = replace(made, samples=made.samples.clear())
    assert len(drawn(charts.limits(alone))["layer"]) == RULES
