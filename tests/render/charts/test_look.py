import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import altair as alt
import polars as pl
import pytest

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.ledger import ledger
from layerscope.analyze.shares import pass_shares, region_table
from layerscope.render import charts, colours
from layerscope.render.charts.look import region_colour
from layerscope.render.colours import Colour
from tests import edited
from tests.render.charts.specs import drawn

HEX = re.compile(r"#[0-9a-fA-F]{3,8}\b")
NAMED = re.compile(r'"(?:black|white|gr[ae]y|steelblue)"')


def every_chart() -> dict[str, alt.LayerChart]:
    """All charts of a run in which everything was measured."""
    run = edited.run()
    found = {
        "timeline": charts.timeline(run),
        "ledger": charts.ledger(ledger(run, "reference", "fused")),
        "shares": charts.shares(run),
        "samples": charts.samples(run),
        "knockouts": charts.knockouts(run),
        "limits": charts.limits(run),
    }
    return {name: chart for name, chart in found.items() if chart is not None}


CHARTS = every_chart()


def known() -> list[Colour]:
    """Every colour that there is."""
    named = [each for each in vars(colours).values() if isinstance(each, Colour)]
    return [*named, *colours.REGION_COLOURS.values()]


def test_every_chart_can_be_drawn() -> None:
    """A run in which everything was measured has all six."""
    assert len(CHARTS) == 6


@pytest.mark.parametrize("name", CHARTS)
def test_colours_are_those_of_the_page(name: str) -> None:
    """No chart has a colour of its own, so that a page can change all of them."""
    light, dark = CHARTS[name].to_json(), charts.dark(CHARTS[name]).to_json()
    assert set(HEX.findall(light)) <= {colour.light for colour in known()}
    assert set(HEX.findall(dark)) <= {colour.dark for colour in known()}
    assert not NAMED.findall(light)


@pytest.mark.parametrize("name", CHARTS)
def test_text_is_never_left_to_a_default(name: str) -> None:
    """What a theme leaves black is said, for it cannot be read on a dark page."""
    config = CHARTS[name].to_dict()["config"]
    assert config["background"] == colours.PAGE.light
    assert config["title"]["color"] == config["text"]["color"] == colours.TEXT.light
    for part in ("axis", "legend"):
        assert config[part]["labelColor"] == colours.TEXT.light
        assert config[part]["titleColor"] == colours.MUTED.light


@pytest.mark.parametrize("name", CHARTS)
def test_pictures_need_no_browser(name: str, tmp_path: Path) -> None:
    """PNG and SVG are written as they are, as wide as a chart in nothing is."""
    path = tmp_path / f"{name}.png"
    CHARTS[name].save(path)
    assert path.read_bytes().startswith(b"\x89PNG\r\n")
    svg = charts.svg(CHARTS[name])
    assert svg.startswith("<svg")
    assert drawn(CHARTS[name])["title"]["text"] in svg
    path = tmp_path / f"{name}.svg"
    charts.dark(CHARTS[name]).save(path)
    assert colours.PAGE.dark in path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", CHARTS)
def test_charts_are_as_wide_as_their_container(name: str) -> None:
    """Which is 760 pixels where there is none."""
    spec = CHARTS[name].to_dict()
    assert spec["width"] == "container"
    assert spec["config"]["view"]["continuousWidth"] == 760


def test_rows_beyond_any_limit_are_drawn() -> None:
    """Altair refuses frames of more than 5,000 rows; charts know no such limit."""
    rows = [{"at": number} for number in range(6_000)]
    chart = alt.Chart(charts.look.data(rows)).mark_point().encode(x="at:Q")
    (values,) = chart.to_dict()["datasets"].values()
    assert len(values) == 6_000


def test_control_characters_are_written_out() -> None:
    """They reach no data, title, label or legend: drawing them ends the process."""
    run = edited.run()
    hostile = "\x1b]0;\x00\n"
    kernels = run.kernels.with_columns(
        region=pl.lit(hostile), name=pl.lit(hostile), arm=pl.lit(hostile)
    )
    anchors = {hostile: Estimate(40_000, 40_000, 40_000, 1, 1)}
    shown = (
        charts.timeline_of(kernels, [hostile]),
        charts.shares_of(region_table(pass_shares(kernels)), anchors),
        charts.ledger(replace(ledger(run, "reference", "fused"), other=hostile)),
    )
    for chart in shown:
        assert chart is not None
        written = json.dumps(chart.to_dict(), ensure_ascii=False)
        assert "\\\\x1b]0;\\\\x00\\\\n" in written
        assert not re.search(r"[^\\]\\(u00|[bfnrt])", written)
        assert r"\x1b]0;\x00\n" in charts.svg(chart)


def test_foreign_regions_have_colours_of_their_own() -> None:
    """Two names that no layer has are told apart; ``other`` stays last."""
    regions = ["other", "b_mine", "moe", "a_mine"]
    told: Any = region_colour(regions, None).to_dict()
    scale = told["scale"]
    assert scale["domain"] == ["MoE", "a_mine", "b_mine", "other"]
    assert len(set(scale["range"])) == 4


def test_data_keeps_what_looks_like_a_colour() -> None:
    """A kernel may be called as a colour is; in the dark it is still called so."""
    name = colours.TEXT.light
    named = alt.Chart(charts.look.data([{"name": name}])).mark_text(color=name)
    layered = charts.look.finished(alt.layer(named), "", [], height=10)
    spec = charts.dark(layered).to_dict()
    assert list(spec["datasets"].values()) == [[{"name": name}]]
    assert spec["layer"][0]["mark"]["color"] == colours.TEXT.dark
