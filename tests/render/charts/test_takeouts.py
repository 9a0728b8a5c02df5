from layerscope.render import charts
from tests import edited, handmade
from tests.render.charts.specs import drawn, only, rows_of

HOLLOW = 1


def test_shares_stand_beside_what_taking_out_gave() -> None:
    """Captured above serial: hollow the shares, filled what a pass loses."""
    rows = rows_of(drawn(charts.knockouts(edited.run())))
    fused = [row for row in rows if row["arm"] == "fused"]
    assert only(fused, "region", "graph", "is_out", "at", "level", "told") == [
        ("MoE", "captured", False, 10_500, 0.83, "10.50 µs"),
        ("MoE", "captured", True, 8_300, 0.83, "8.300 µs (8.300 … 8.300)"),
        ("MoE", "serial", False, 11_000, 1.17, "11.00 µs"),
        ("MoE", "serial", True, 9_800, 1.17, "9.800 µs (9.800 … 9.800)"),
    ]


def test_only_what_was_taken_out_is_filled_and_has_an_interval() -> None:
    """The layers share their rows, and each draws its own."""
    spec = drawn(charts.knockouts(edited.run()))
    filters = [layer["transform"][0]["filter"] for layer in spec["layer"]]
    assert filters == ["datum.is_out", "!datum.is_out", "datum.is_out"]
    assert [layer["mark"].get("filled") for layer in spec["layer"][HOLLOW:]] == [
        False,
        True,
    ]


def test_without_knock_outs_there_is_no_chart() -> None:
    """A run in which no region was taken out has none."""
    assert charts.knockouts(handmade.run()) is None
