"""What regions cost by their shares, and by taking them out of the graph."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import altair as alt
import polars as pl

from layerscope.analyze.knockouts import KnockOut, knock_outs
from layerscope.analyze.shares import pass_shares, region_table
from layerscope.analyze.statistics import pass_times
from layerscope.experiment import CAPTURED, SERIAL
from layerscope.render import colours
from layerscope.render.charts.look import (
    Rows,
    data,
    finished,
    legend,
    levels,
    region_colour,
    time_axis,
    told_interval,
    tooltips,
)
from layerscope.report.region_names import region_name
from layerscope.run import Run
from layerscope.units import format_ns, time_scale

_ROW: Final = 46  # pixels
_APART: Final = 0.17
"""How far captured and serial lie from the middle of a row, in rows."""

_HOW: Final = (
    "circle: in the captured graph; diamond: in its serial twin",
    "hollow: mean share of a profiled pass; filled: what a pass loses without it",
)
_TOLD: Final = tooltips(arm="arm", region="region", what="by", told="time a pass")


def knockouts(run: Run) -> alt.LayerChart | None:
    """Every region that was taken out of a graph: its shares, and what it costs.

    Returns:
        None where no region was taken out.
    """
    times = pass_times(run.samples)
    found = {
        arm.name: knock_outs(run.header, times, arm.name)
        for arm in run.header.study.arms
    }
    if not any(found.values()):
        return None
    return knockouts_of(found, region_table(pass_shares(run.kernels)))


def knockouts_of(
    knocked: Mapping[str, tuple[KnockOut, ...]], regions: pl.DataFrame
) -> alt.LayerChart | None:
    """As `knockouts`, for who has the shares already.

    Args:
        knocked: by arm, from above.
        regions: `shares.region_table`.
    """
    rows = [(arm, each) for arm, found in knocked.items() for each in found]
    if not rows:
        return None
    keys = ("arm", "experiment", "region", "share_mean_ns")
    shares = {tuple(key): share for *key, share in regions.select(keys).iter_rows()}
    points = [
        point
        for place, (arm, each) in enumerate(rows)
        for point in _points(place, arm, each, shares)
    ]
    return finished(
        _chart(points, [each for _, each in rows], [arm for arm, _ in rows]),
        "what regions cost",
        _HOW,
        height=_ROW * len(rows),
        zooms=True,
    )


def _chart(
    points: Rows, regions: Sequence[KnockOut], arms: Sequence[str]
) -> alt.LayerChart | alt.FacetChart:
    names = [each.region for each in regions]
    labels = [[region_name(name), arm] for name, arm in zip(names, arms, strict=True)]
    scale = time_scale([point["at"] for point in points])
    axis = time_axis(scale.unit, scale.ns, title="a pass")
    base = alt.Chart(data(points)).encode(y=levels(labels), tooltip=_TOLD)
    out = base.transform_filter("datum.is_out")
    shares = base.transform_filter("!datum.is_out")
    at = alt.X("at:Q", axis=axis).scale(nice=False, padding=12)
    whiskers = out.mark_rule(strokeWidth=1.5, color=colours.TEXT.light)
    hollow = shares.mark_point(size=150, filled=False, strokeWidth=2, opacity=1)
    filled = out.mark_point(size=55, filled=True, opacity=1)
    return alt.layer(
        whiskers.encode(x=alt.X("low:Q"), x2=alt.X2("high:Q")),
        hollow.encode(x=at, shape=_shape(), color=region_colour(names, legend())),
        filled.encode(x=at, shape=_shape(), color=region_colour(names, legend())),
    )


def _shape() -> alt.Shape:
    scale = alt.Scale(domain=["captured", "serial"], range=["circle", "diamond"])
    return alt.Shape("graph:N", scale=scale, legend=None)


def _points(
    place: int, arm: str, found: KnockOut, shares: dict[tuple[Any, ...], float]
) -> Iterator[dict[str, Any]]:
    named = {"arm": arm, "region": region_name(found.region)}
    for graph, experiment, apart, taken_out in (
        ("captured", CAPTURED, -_APART, found.captured),
        ("serial", SERIAL.name, _APART, found.serial),
    ):
        beside = named | {"graph": graph, "level": place + apart}
        whose = "captured graph" if graph == "captured" else "serial twin"
        share_ns = shares.get((arm, experiment, found.region))
        if share_ns is not None:
            yield beside | {
                "is_out": False,
                "at": share_ns,
                "what": f"mean share, {whose}",
                "told": format_ns(share_ns),
            }
        if taken_out is not None:
            yield beside | {
                "is_out": True,
                "at": taken_out.value,
                "low": taken_out.low,
                "high": taken_out.high,
                "what": f"taken out of the {whose}",
                "told": told_interval(taken_out),
            }
