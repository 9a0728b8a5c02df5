from dataclasses import replace

import polars as pl

from layerscope.render.charts import timeline, timeline_of
from layerscope.run import Run
from tests import handmade
from tests.render.charts.specs import drawn, mark_of, only, rows_of

GAPS, HIDDEN, SOLID, ENDS = range(4)
TIMES = ("place", "idle", "start", "reached", "end")


def altered(**values: pl.Expr) -> Run:
    """The hand-made run with other kernels."""
    made = handmade.run()
    return replace(made, kernels=made.kernels.with_columns(**values))


def test_kernels_lie_where_they_were_recorded() -> None:
    """A row a kernel: the gap before it, its start, what is hidden of it, its end."""
    rows = rows_of(drawn(timeline(handmade.run())))
    median = [row for row in rows if row["opacity"] == 1]
    assert only(median, *TIMES) == [
        (0, 0, 2_000, 2_000, 22_000),
        (0, 22_000, 23_000, 23_000, 28_000),
        (0, 28_000, 28_000, 28_000, 41_000),
        (1, 0, 1_000, 1_000, 16_000),
        (1, 20_000, 20_500, 20_500, 30_500),
        (2, 15_000, 15_000, 16_000, 20_000),
    ]
    assert len(rows) == 3 * len(median)


def test_every_nanosecond_of_a_pass_is_drawn_once() -> None:
    """Gaps and solid bars add up to the median pass, which ends where its mark is."""
    spec = drawn(timeline(handmade.run()))
    passes_ns = {row["arm"]: row["end"] for row in rows_of(spec, ENDS)}
    assert passes_ns == {"reference": 41_000, "fused": 30_500}
    median = [row for row in rows_of(spec) if row["opacity"] == 1]
    own = [row for row in median if row["place"] in (1, 2)]
    gaps_ns = sum(row["start"] - row["idle"] for row in own)
    solid_ns = sum(row["end"] - row["reached"] for row in own)
    assert gaps_ns + solid_ns == 30_500


def test_each_part_is_a_mark_of_its_own() -> None:
    """Gaps are thin, hidden parts hollow, and what is not there is not drawn."""
    spec = drawn(timeline(handmade.run()))
    parts = [
        (
            layer["encoding"]["x"]["field"],
            layer["encoding"]["x2"]["field"],
            layer["transform"],
        )
        for layer in spec["layer"][GAPS:ENDS]
    ]
    assert parts == [
        ("idle", "start", [{"filter": "datum.idle < datum.start"}]),
        ("start", "reached", [{"filter": "datum.start < datum.reached"}]),
        ("reached", "end", [{"filter": "datum.reached < datum.end"}]),
    ]
    assert mark_of(spec, GAPS)["height"] < 10
    assert mark_of(spec, HIDDEN)["fillOpacity"] < 0.5
    assert "stroke" in spec["layer"][HIDDEN]["encoding"]
    assert "fillOpacity" not in mark_of(spec, SOLID)


def test_tooltips_tell_everything_of_a_kernel() -> None:
    """Name, region, role, launch and times, as text with units."""
    spec = drawn(timeline(handmade.run()))
    for layer in spec["layer"][GAPS:ENDS]:
        assert [each["title"] for each in layer["encoding"]["tooltip"]] == [
            *("kernel", "region", "role", "grid", "block"),
            *("start", "duration", "gap before it", "hidden"),
        ]
    told = [each["field"] for each in spec["layer"][SOLID]["encoding"]["tooltip"]]
    rows = [row for row in rows_of(spec) if row["place"] == 2 and row["opacity"] == 1]
    assert only(rows, *told) == [
        (
            *("project", "o-proj + all-reduce", "–", "132 × 1 × 1", "256 × 1 × 1"),
            *("15.00 µs", "5.000 µs", "0 ns", "1.000 µs"),
        )
    ]


def test_lanes_are_named_after_arms_and_streams() -> None:
    """An arm and its pass where it begins; then its streams, and what runs beside."""
    streams = pl.when(pl.col("name") == "experts").then(8).otherwise(pl.col("stream"))
    spec = drawn(timeline(altered(stream=streams)))
    axis = spec["layer"][SOLID]["encoding"]["y"]["axis"]
    assert axis["labelExpr"] == (
        '[["reference","41.00 µs, stream 7"],"stream 8",'
        '["fused","30.50 µs, stream 7"],"beside it, stream 7",'
        '"stream 8"][datum.value]'
    )


def test_arms_share_an_axis_that_begins_with_their_pass() -> None:
    """The longest pass is shown whole, in µs, with a margin of 1 %."""
    x = drawn(timeline(handmade.run()))["layer"][SOLID]["encoding"]["x"]
    assert x["scale"]["domain"] == [-410, 41_410]
    assert x["axis"]["title"] == "since the start of the pass, µs"
    assert x["axis"]["labelExpr"] == "format(datum.value / 1000, ',.12~g')"


def test_the_wheel_zooms_and_dragging_moves() -> None:
    """The axis of time, and only that, is bound to the pointer, by a layer with one."""
    spec = drawn(timeline(handmade.run()))
    (zoom,) = spec["params"]
    assert zoom["bind"] == "scales"
    assert zoom["select"] == {"type": "interval", "encodings": ["x"]}
    assert zoom["views"] == [spec["layer"][GAPS]["name"]]


def test_arms_are_drawn_in_the_order_asked_for() -> None:
    """Only those that are named, the A/A arm among them if it is."""
    chart = timeline(handmade.run(), ["reference (A/A)", "fused"])
    label = drawn(chart)["layer"][SOLID]["encoding"]["y"]["axis"]["labelExpr"]
    assert label.startswith('[["reference (A/A)","41.00 µs, stream 7"],["fused","')


def test_other_experiments_are_not_mixed_in() -> None:
    """Rows of twins are no part of the captured graph's picture."""
    serial = altered(experiment=pl.lit("serial"))
    assert timeline(serial) is None
    assert timeline_of(serial.kernels, ["fused"]) is not None


def test_of_nothing_there_is_no_chart() -> None:
    """Where no kernel was recorded there is nothing to draw."""
    made = handmade.run()
    assert timeline(replace(made, kernels=made.kernels.clear())) is None
