"""The kernels of the median pass of every arm, on one axis of time."""

from collections.abc import Sequence
from typing import Any, Final

import altair as alt
import polars as pl

from layerscope.analyze.median_pass import pictured_kernels
from layerscope.analyze.tracks import with_tracks
from layerscope.experiment import CAPTURED
from layerscope.render import colours
from layerscope.render.charts.look import (
    Rows,
    data,
    finished,
    legend,
    region_colour,
    time_axis,
    told_rows,
    tooltips,
)
from layerscope.report.evidence import launch_shape
from layerscope.report.region_names import region_name
from layerscope.run import Run
from layerscope.units import NOTHING, format_ns, time_scale

_LANE: Final = 40  # pixels, from one row to the next
_THIN: Final = 4
_BETWEEN: Final = 0.35
"""Part of a lane that is free between it and the next."""

_BESIDE: Final = 0.25
"""Opacity of the passes before and after the median one."""

_MARGIN: Final = 0.01
"""Part of the longest pass that is shown before it, and after."""

_HOW: Final = (
    "solid: a kernel moves the pass on; hollow: it is hidden; pale: the passes beside",
    "thin: a gap, in the colour of the region that ends it; upright: the pass ends",
)
_LINES: Final = ("arm", "stream")
_TOLD: Final = tooltips(
    name="kernel",
    region="region",
    role="role",
    grid="grid",
    block="block",
    told_start="start",
    told_duration="duration",
    told_gap="gap before it",
    told_hidden="hidden",
)


def timeline(run: Run, arms: Sequence[str] | None = None) -> alt.LayerChart | None:
    """The median pass of each arm: a row a stream, more where its kernels overlap.

    Passes start together at 0, so that arms can be compared by eye. The passes beside
    them in the same replay are pale. The wheel zooms, dragging moves along.

    Args:
        run: what holds the arms.
        arms: which, from above; None takes all but the A/A arm.

    Returns:
        None where no used pass of these arms was recorded.
    """
    if arms is None:
        arms = [arm.name for arm in run.header.study.arms]
    return timeline_of(run.kernels.filter(pl.col("experiment") == CAPTURED), arms)


def timeline_of(kernels: pl.DataFrame, arms: Sequence[str]) -> alt.LayerChart | None:
    """As `timeline`, of the kernels of one experiment.

    Args:
        kernels: `schema.KERNELS`, whole replays.
        arms: which of them, from above.
    """
    wanted = kernels.filter(pl.col("arm").is_in(list(arms)))
    return pictured_timeline(pictured_kernels(wanted), arms)


def pictured_timeline(
    pictured: pl.DataFrame, arms: Sequence[str]
) -> alt.LayerChart | None:
    """As `timeline_of`, for who has the passes already.

    Args:
        pictured: `median_pass.pictured_kernels` of one experiment.
        arms: which of them, from above.
    """
    wanted = pictured.filter(pl.col("arm").is_in(list(arms)))
    if wanted.is_empty():
        return None
    order = {arm: place for place, arm in enumerate(arms)}
    ordered = with_tracks(wanted, _LINES).sort(
        pl.col("arm").replace_strict(order), "stream", "track", maintain_order=True
    )
    lanes = pl.struct(*_LINES, "track").rle_id().cast(pl.Int64)
    return _chart(
        ordered.with_columns(launch_shape("grid"), launch_shape("block"), lane=lanes)
    )


def _chart(kernels: pl.DataFrame) -> alt.LayerChart:
    regions = set(kernels["region"])
    axis, across = _time(kernels)
    lanes = told_rows(_labels(kernels), grid=False).scale(
        paddingInner=_BETWEEN, paddingOuter=_BETWEEN / 2
    )
    base = alt.Chart().encode(
        y=lanes,
        color=region_colour(regions, legend()),
        opacity=alt.Opacity("opacity:Q", scale=None),
        tooltip=_TOLD,
    )

    def part(begin: str, end: str) -> alt.Chart:
        return base.transform_filter(f"datum.{begin} < datum.{end}").encode(
            x=alt.X(f"{begin}:Q", axis=axis, scale=across), x2=f"{end}:Q"
        )

    gaps = part("idle", "start").mark_bar(clip=True, height=_THIN)
    hidden = part("start", "reached").mark_bar(
        clip=True, fillOpacity=0.2, strokeOpacity=1, strokeWidth=1.2
    )
    hidden = hidden.encode(stroke=region_colour(regions, legend()))
    solid = part("reached", "end").mark_bar(clip=True)
    ends = _end_marks(kernels).encode(
        x=alt.X("end:Q", axis=axis, scale=across), y=lanes
    )
    tops = [{"place": place} for place in _tops(kernels)[1:]]
    rules = alt.Chart(data(tops)).mark_rule(
        color=colours.RULE.light, yOffset=-_LANE * _BETWEEN / 2
    )
    rules = rules.encode(y=alt.Y("place:O", bandPosition=0))
    return finished(
        # the first layer is the one that zooms, and rules have no time
        alt.layer(gaps, hidden, solid, ends, rules, data=data(_kernels(kernels))),
        "median pass of each arm",
        _HOW,
        height=_LANE * kernels["lane"].n_unique(),
        zooms=True,
    )


def _end_marks(kernels: pl.DataFrame) -> alt.Chart:
    """An upright mark on every lane."""
    marks: alt.Chart = (
        alt.Chart(data(_ends(kernels)))
        .mark_tick(
            thickness=2, bandSize=_LANE * 0.9, color=colours.TEXT.light, clip=True
        )
        .encode(tooltip=tooltips(arm="arm", told="median pass"))
    )
    return marks


def _time(kernels: pl.DataFrame) -> tuple[alt.Axis, alt.Scale]:
    """The axis, and on it the longest median pass from end to end."""
    median = kernels.filter(pl.col("place") == 0)
    first, last = pl.col("start_ns").min(), pl.max_horizontal("end_ns", "increment_ns")
    first_ns, last_ns = median.select(first, last.max()).row(0)
    margin_ns = max(1, round(_MARGIN * last_ns))
    shown = [min(0, first_ns) - margin_ns, last_ns + margin_ns]
    scale = time_scale([last_ns])
    axis = time_axis(scale.unit, scale.ns, title="since the start of the pass")
    return axis, alt.Scale(domain=shown, nice=False)


def _labels(kernels: pl.DataFrame) -> list[str | list[str]]:
    """Of every lane its stream; where an arm begins, first the arm and its pass."""
    labels: list[str | list[str]] = []
    told = {end["arm"]: end["told"] for end in _ends(kernels)}
    before = None
    lanes = kernels.unique("lane").sort("lane").select("arm", "stream", "track")
    for arm, stream, track in lanes.iter_rows():
        lane = f"beside it, stream {stream}" if track else f"stream {stream}"
        labels.append(lane if arm == before else [arm, f"{told[arm]}, {lane}"])
        before = arm
    return labels


def _tops(kernels: pl.DataFrame) -> list[int]:
    """The first lane of every arm."""
    return sorted(kernels.group_by("arm").agg(pl.col("lane").min())["lane"])


def _ends(kernels: pl.DataFrame) -> Rows:
    """Where the median pass of its arm ends, on every lane."""
    median = kernels.filter(pl.col("place") == 0).select(
        "arm", pl.col("increment_ns").alias("end")
    )
    lanes = kernels.select("arm", "lane").join(median.unique(), on="arm").unique()
    return [
        {**lane, "place": lane["lane"], "told": format_ns(lane["end"])}
        for lane in lanes.sort("lane").to_dicts()
    ]


def _kernels(kernels: pl.DataFrame) -> Rows:
    """A row a kernel: where the gap before it begins, and its hidden part ends."""
    return [
        {
            "place": kernel["lane"],
            "opacity": 1 if kernel["place"] == 0 else _BESIDE,
            "idle": kernel["start_ns"] - kernel["gap_ns"],
            "start": kernel["start_ns"],
            "reached": kernel["start_ns"] + kernel["hidden_ns"],
            "end": kernel["end_ns"],
            **_told(kernel),
        }
        for kernel in kernels.iter_rows(named=True)
    ]


def _told(kernel: dict[str, Any]) -> dict[str, Any]:
    return {
        "region": region_name(kernel["region"]),
        "name": kernel["name"],
        "role": kernel["role"] or NOTHING,
        "grid": kernel["grid"] or NOTHING,
        "block": kernel["block"] or NOTHING,
        **{
            f"told_{field}": format_ns(kernel[f"{field}_ns"])
            for field in ("start", "duration", "gap", "hidden")
        },
    }
