"""How all charts look, on a light page and on a dark one."""

import re
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from math import isfinite
from typing import Any, Final, Literal, Self, cast

import altair as alt
import msgspec
from altair.utils.schemapi import debug_mode

from layerscope.analyze.bootstrap import Estimate
from layerscope.render import colours
from layerscope.render.plain import plain
from layerscope.report.region_names import region_name
from layerscope.units import format_interval

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
_SHADES: Final = {colour.light: colour.dark for colour in colours.every_colour()}
_HEX: Final = re.compile(r"#[0-9a-f]{6}")
_DATA: Final = frozenset({"data", "datasets"})


def finished(
    chart: alt.LayerChart | alt.FacetChart,
    title: str,
    subtitles: Sequence[str],
    *,
    height: float,
    zooms: bool = False,
) -> alt.LayerChart:
    """`chart` under a title, as wide as what holds it, in the light look.

    Args:
        chart: of layers; none of ours has facets.
        title: what it shows.
        subtitles: how to read it, a line each.
        height: in pixels, of all rows.
        zooms: whether the wheel zooms the horizontal axis, and dragging moves along.
    """
    told = alt.TitleParams(text=plain(title), subtitle=list(map(plain, subtitles)))
    sized = chart.copy(deep=False)
    sized["title"], sized["width"], sized["height"] = told, CONTAINER, height
    sized["autosize"] = alt.AutoSizeParams(type="fit-x", contains="padding")
    if zooms:
        zoom = alt.selection_interval(name="zoom", bind="scales", encodings=["x"])
        sized = sized.add_params(zoom)
    return cast("alt.LayerChart", sized.configure(**_CONFIG))


def dark(chart: alt.LayerChart) -> alt.LayerChart:
    """`chart`, one of ours, in the colours for a dark page."""
    shaded = painted(chart.to_dict(), lambda light: _SHADES.get(light, light))
    return alt.LayerChart.from_dict(shaded)


def painted(spec: Any, paint: Callable[[str], str]) -> Any:  # noqa: ANN401 (any JSON)
    """A specification in other colours; data stays as it is.

    Args:
        spec: of a chart, or a part of it.
        paint: gives for a light shade what stands in its place.
    """
    if isinstance(spec, dict):
        return {
            key: each if key in _DATA else painted(each, paint)
            for key, each in spec.items()
        }
    if isinstance(spec, list):
        return [painted(each, paint) for each in spec]
    if isinstance(spec, str) and _HEX.fullmatch(spec):
        return paint(spec)
    return spec


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
        return _Rows(values=[_said(row) for row in rows])


def _said(row: dict[str, Any]) -> dict[str, Any]:
    """`row` in what charts can say: no text that is not plain, no infinite number."""
    return {field: _value(value) for field, value in row.items()}


def _value(value: Any) -> Any:  # noqa: ANN401 (of any field)
    if isinstance(value, str):
        return plain(value)
    return None if isinstance(value, float) and not isfinite(value) else value


def region_colour(regions: Iterable[str], legend: alt.Legend | None) -> alt.Color:
    """The colours of `regions`, whose names for people are in the field ``region``."""
    shades = colours.colours_of(regions)
    scale = alt.Scale(
        domain=[plain(region_name(name)) for name in shades],
        range=[colour.light for colour in shades.values()],
    )
    return alt.Color("region:N", scale=scale, legend=legend)


def legend() -> alt.Legend:
    """A legend in one row above the chart."""
    return alt.Legend(title=None, symbolType="square", symbolStrokeWidth=0)


def chosen(labels: Sequence[str | list[str]], number: str = "datum.value") -> str:
    """The Vega expression that is the label of the row with a number from 0."""
    shown = [
        plain(each) if isinstance(each, str) else list(map(plain, each))
        for each in labels
    ]
    return f"{msgspec.json.encode(shown).decode()}[{number}]"


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
    return format_interval(found.value, found.low, found.high)


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
        tickCount=tick_count(),
        labelFlush=False,
        **options,
    )


def tick_count() -> alt.ExprRef:
    """As many ticks as have room for their labels, roughly, and at most eight."""
    return alt.ExprRef("clamp(floor(width / 75), 2, 8)")


def tooltips(**titles: str) -> list[alt.Tooltip]:
    """A line of a tooltip a field, each under its title."""
    return [alt.Tooltip(f"{field}:N", title=title) for field, title in titles.items()]
