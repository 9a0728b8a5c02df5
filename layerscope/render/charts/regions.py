"""Where the time of a pass of every arm goes, region by region."""

from collections.abc import Mapping
from typing import Any, Final

import altair as alt
import polars as pl

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.shares import pass_shares, region_table
from layerscope.analyze.statistics import anchor, pass_times
from layerscope.experiment import CAPTURED
from layerscope.regions import in_order
from layerscope.render import colours
from layerscope.render.charts.look import (
    Rows,
    data,
    finished,
    legend,
    region_colour,
    time_axis,
    told_interval,
    tooltips,
)
from layerscope.render.plain import plain
from layerscope.report.region_names import region_name
from layerscope.run import Run
from layerscope.units import format_ns, format_number, format_percent, time_scale

_ROW: Final = 44  # pixels
_BAR: Final = 26
_PALE: Final = 0.35
_HOW: Final = "mean shares, which add up; pale: gaps; diamond: the anchor, unprofiled"
_HOW_OBSERVED: Final = "mean shares, which add up; pale: gaps; nothing ran unprofiled"
_TOLD: Final = tooltips(
    arm="arm",
    region="region",
    kernels="kernels",
    share="mean share",
    part="of the profiled pass",
    gap="gap",
    sum="sum of durations",
    hidden="hidden",
)


def shares(run: Run) -> alt.LayerChart | None:
    """The mean profiled pass of every arm, split among regions; it adds up.

    Pale is the part of a region's share that is gaps. A diamond marks the anchor, what
    a pass takes without a profiler.

    Returns:
        None where no kernels were recorded.
    """
    captured = run.kernels.filter(pl.col("experiment") == CAPTURED)
    times = pass_times(run.samples)
    arms = (arm.name for arm in run.header.study.all_arms)
    anchors = {arm: anchor(times, arm) for arm in arms}
    return shares_of(region_table(pass_shares(captured)), anchors)


def shares_of(
    regions: pl.DataFrame, anchors: Mapping[str, Estimate]
) -> alt.LayerChart | None:
    """As `shares`, for who has the shares already.

    Args:
        regions: `shares.region_table` of the captured graphs.
        anchors: of every arm, from above.
    """
    if regions.is_empty():
        return None
    profiled = set(regions["arm"])
    arms = [arm for arm in anchors if arm in profiled]
    rows = [part for arm in arms for part in _parts(regions, arm)]
    scale = time_scale([row["to"] for row in rows])
    x = alt.X("from:Q", axis=time_axis(scale.unit, scale.ns, title="a profiled pass"))
    order = list(map(plain, arms))
    side = alt.Axis(title=None, domain=False, ticks=False, labelPadding=8)
    y = alt.Y("arm:N", sort=order, axis=side)
    bars = alt.Chart(data(rows)).mark_bar(height=_BAR)
    bars = bars.encode(
        x=x,
        x2=alt.X2("to:Q"),
        y=y,
        color=region_colour(regions["region"], legend()),
        opacity=alt.Opacity("opacity:Q", scale=None),
        tooltip=_TOLD,
    )
    marks = alt.Chart(data(_anchors(anchors, arms))).mark_point(
        shape="diamond",
        size=70,
        filled=True,
        opacity=1,
        color=colours.TEXT.light,
        stroke=colours.PAGE.light,
        strokeWidth=1,
    )
    marks = marks.encode(
        x=alt.X("at:Q"), y=y, tooltip=tooltips(arm="arm", told="anchor, 95 % interval")
    )
    return finished(
        alt.layer(bars, marks),
        "where the time of a profiled pass goes",
        [_HOW if _anchors(anchors, arms) else _HOW_OBSERVED],
        height=_ROW * len(arms),
    )


def _parts(regions: pl.DataFrame, arm: str) -> Rows:
    """Two marks a region, one after another: its kernels, and its gaps."""
    own = {
        row["region"]: row
        for row in regions.filter(pl.col("arm") == arm).iter_rows(named=True)
    }
    total_ns = sum(row["share_mean_ns"] for row in own.values())
    at_ns, marks = 0.0, []
    for region in in_order(own):
        row = own[region]
        told = _told(row, total_ns)
        exclusive_ns = row["duration_mean_ns"] - row["hidden_mean_ns"]
        for part_ns, opacity in ((exclusive_ns, 1.0), (row["gap_mean_ns"], _PALE)):
            place = {"from": at_ns, "to": at_ns + part_ns, "opacity": opacity}
            marks.append(place | told)
            at_ns += part_ns
    return marks


def _told(row: dict[str, Any], total_ns: float) -> dict[str, Any]:
    return {
        "arm": row["arm"],
        "region": region_name(row["region"]),
        "kernels": format_number(row["kernels"], 0 if row["kernels"] % 1 == 0 else 1),
        "share": format_ns(row["share_mean_ns"]),
        "part": format_percent(row["share_mean_ns"] / total_ns),
        "gap": format_ns(row["gap_mean_ns"]),
        "sum": format_ns(row["duration_mean_ns"]),
        "hidden": format_ns(row["hidden_mean_ns"]),
    }


def _anchors(anchors: Mapping[str, Estimate], arms: list[str]) -> Rows:
    found = {arm: anchors[arm] for arm in arms if anchors[arm].samples}
    return [
        {
            "arm": arm,
            "at": each.value,
            "told": told_interval(each),
        }
        for arm, each in found.items()
    ]
