"""How all charts look, on a light page and on a dark one."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from io import StringIO
from math import isfinite
from typing import Any, Final, Literal, Self, cast

import altair as alt
import msgspec
from altair.utils.schemapi import debug_mode

from layerscope.analyze.bootstrap import Estimate
from layerscope.regions import in_order
from layerscope.render import colours
from layerscope.render.colours import Colour, colour_of
from layerscope.render.region_names import region_name
from layerscope.units import estimate_scale

Rows = list[dict[str, Any]]
"""Data of a chart, a mark a row; times in ns, and what tooltips say as text."""

CONTAINER: Final = "container"
"""A chart is as wide as what holds it, where that is known."""

_WIDTH: Final = 760
"""Of a chart in nothing, such as a picture; pixels."""

_CONFIG: Final[dict[str, Any]] = {
    "background": colours.PAGE.light,
    "padding": 12,
    "font": "system-ui, Helvetica, Arial, sans-serif",
    "view": {"stroke": None, "continuousWidth": _WIDTH},
    "title": {
        "anchor": "start",
        "color": colours.TEXT.light,
        "subtitleColor": colours.MUTED.light,
        "fontSize": 14,
        "subtitleFontSize": 12,
        "subtitlePadding": 4,
        "offset": 10,
    },
    "axis": {
        "labelColor": colours.TEXT.light,
        "titleColor": colours.MUTED.light,
        "gridColor": colours.RULE.light,
        "domainColor": colours.RULE.light,
        "tickColor": colours.RULE.light,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelLimit": 320,
    },
    "legend": {
        "labelColor": colours.TEXT.light,
        "titleColor": colours.MUTED.light,
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "labelLimit": 240,
        "orient": "top",
        "offset": 4,
        "columnPadding": 16,
    },
    "text": {"color": colours.TEXT.light, "fontSize": 12},
    "rule": {"color": colours.MUTED.light},
}
_SHADES: Final = {
    colour.light: colour.dark
    for colour in (
        *(value for value in vars(colours).values() if isinstance(value, Colour)),
        *colours.REGION_COLOURS.values(),
    )
}
_HEX: Final = re.compile(r"#[0-9a-f]{6}")


def finished(
    chart: alt.LayerChart | alt.FacetChart,
    title: str,
    subtitles: Sequence[str],
    *,
    height: float | alt.Step,
    zooms: bool = False,
) -> alt.LayerChart:
    """`chart` under a title, as wide as what holds it, in the light look.

    Args:
        chart: of layers; none of ours has facets.
        title: what it shows.
        subtitles: how to read it, a line each.
        height: in pixels, in all or a row.
        zooms: whether the wheel zooms the horizontal axis, and dragging moves along.
    """
    told = alt.TitleParams(text=title, subtitle=list(subtitles))
    sized = chart.copy(deep=False)
    sized["title"], sized["width"], sized["height"] = told, CONTAINER, height
    if zooms:
        zoom = alt.selection_interval(name="zoom", bind="scales", encodings=["x"])
        sized = sized.add_params(zoom)
    return cast("alt.LayerChart", sized.configure(**_CONFIG))


def dark(chart: alt.LayerChart) -> alt.LayerChart:
    """`chart`, one of ours, in the colours for a dark page."""
    text = chart.to_json(indent=None)
    shaded = _HEX.sub(lambda found: _SHADES.get(found[0], found[0]), text)
    return cast("alt.LayerChart", alt.LayerChart.from_json(shaded))


def svg(chart: alt.LayerChart) -> str:
    """`chart` as a picture in text, made without a browser."""
    picture = StringIO()
    chart.save(picture, format="svg")
    return picture.getvalue()


class _Rows(alt.InlineData):
    """Data that copies of a chart share: altair copies a chart at almost every step."""

    def __deepcopy__(self, memo: object = None) -> Self:
        """Itself, for nobody changes it."""
        return self


def data(rows: Rows) -> alt.InlineData:
    """`rows` as the data of a chart, however many: altair refuses many frames' rows."""
    with debug_mode(False):  # noqa: FBT003 (checks every row, though all are alike)
        return _Rows(values=[_finite(row) for row in rows])


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """`row` without what JSON cannot say: the ends of intervals that are not known."""
    return {
        field: None if isinstance(value, float) and not isfinite(value) else value
        for field, value in row.items()
    }


def region_colour(regions: Iterable[str], legend: alt.Legend | None) -> alt.Color:
    """The colours of `regions`, whose names for people are in the field ``region``."""
    ordered = in_order(regions)
    foreign = [name for name in ordered if name not in colours.REGION_COLOURS]
    shades = [
        colour_of(name, foreign.index(name) if name in foreign else 0).light
        for name in ordered
    ]
    scale = alt.Scale(domain=list(map(region_name, ordered)), range=shades)
    return alt.Color("region:N", scale=scale, legend=legend)


def legend() -> alt.Legend:
    """A legend in one row above the chart."""
    return alt.Legend(title=None, symbolType="square", symbolStrokeWidth=0)


def chosen(labels: Sequence[str | list[str]], number: str = "datum.value") -> str:
    """The Vega expression that is the label of the row with a number from 0."""
    return f"{msgspec.json.encode(list(labels)).decode()}[{number}]"


def told_rows(
    texts: Sequence[str | list[str]],
    *,
    orient: Literal["left", "right"] = "left",
    grid: bool = True,
) -> alt.Y:
    """A row each, by the field ``place`` from 0, with its text beside it.

    Args:
        texts: from above; a list is lines of one text.
        orient: the side that they stand on, ``left`` or ``right``.
        grid: whether a line runs through every row.
    """
    axis = alt.Axis(
        title=None,
        labelExpr=chosen(texts),
        domain=False,
        ticks=False,
        orient=orient,
        grid=grid,
        labelLimit=420,
        labelPadding=8,
    )
    return alt.Y("place:O", axis=axis)


def levels(texts: Sequence[str | list[str]]) -> alt.Y:
    """As `told_rows`, for marks anywhere in a row: by the number in ``level``."""
    axis = alt.Axis(
        title=None,
        values=list(range(len(texts))),
        labelExpr=chosen(texts),
        domain=False,
        ticks=False,
        grid=False,
        labelPadding=8,
    )
    scale = alt.Scale(domain=[len(texts) - 0.5, -0.5], nice=False, zero=False)
    return alt.Y("level:Q", axis=axis, scale=scale)


def told_interval(found: Estimate) -> str:
    """A time with its 95 % interval: ``40.00 µs (39.90 … 40.10)``."""
    scale = estimate_scale(found.value, found.low, found.high)
    scale = replace(scale, decimals=scale.decimals + 1)
    value, low, high = map(scale.format, (found.value, found.low, found.high))
    return f"{value} {scale.unit} ({low} … {high})"


def time_axis(unit: str, ns: int, **options: Any) -> alt.Axis:  # noqa: ANN401
    """An axis of ns that is written in another unit.

    Args:
        unit: its name.
        ns: nanoseconds in it.
        options: of `altair.Axis`; ``title`` comes before the unit.
    """
    title = options.pop("title")
    return alt.Axis(
        title=f"{title}, {unit}",
        labelExpr=f"format(datum.value / {ns}, ',.12~g')",
        tickCount=8,
        labelFlush=False,
        **options,
    )


def tooltips(**titles: str) -> list[alt.Tooltip]:
    """A line of a tooltip a field, each under its title."""
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in titles.items()]
