"""How far every arm is from what order, bytes and dependencies alone would cost."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import altair as alt

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.statistics import anchor, pass_times
from layerscope.render import colours
from layerscope.render.charts.look import (
    Rows,
    data,
    finished,
    time_axis,
    told_interval,
    told_rows,
    tooltips,
)
from layerscope.run import Run
from layerscope.run_header import Bound
from layerscope.study import AA_SUFFIX
from layerscope.units import format_bytes, format_number, format_things, time_scale

_ROW: Final = 28  # pixels
_BAR: Final = 14
_LINE: Final = 16  # pixels of a line of text
_STANDARD: Final = "standard chain"
_TOLD: Final = tooltips(
    chain="kernels of",
    bound="bound",
    told="a pass",
    work="moves",
    ratios="anchor over it",
)


def limits(run: Run) -> alt.LayerChart | None:
    """Bounds as bars, and the anchor of every arm as a line across them.

    Returns:
        None where no bound was measured.
    """
    times = pass_times(run.samples)
    arms = (arm.name for arm in run.header.study.arms)
    return limits_of(run.header.bounds, {arm: anchor(times, arm) for arm in arms})


def limits_of(
    bounds: Sequence[Bound], found: Mapping[str, Estimate]
) -> alt.LayerChart | None:
    """As `limits`, for who has the anchors already.

    Args:
        bounds: from above.
        found: the anchors, by arm; that of the A/A arm is not drawn.
    """
    if not bounds:
        return None
    anchors = {
        arm: each
        for arm, each in found.items()
        if each.samples and not arm.endswith(AA_SUFFIX)
    }
    rows = [_row(place, bound, anchors) for place, bound in enumerate(bounds)]
    scale = time_scale(
        [each.value for each in anchors.values()] + [row["to"] for row in rows]
    )
    axis = time_axis(scale.unit, scale.ns, title="time of a pass")
    layers = alt.layer(*_bounds(rows, axis), *_anchors(anchors, axis))
    return finished(
        layers.resolve_axis(y="independent"),
        "distance to bounds",
        ["bars: kernels that only read what they must; dashed: the anchors of arms"],
        height=_ROW * len(rows),
    )


def _bounds(rows: Rows, axis: alt.Axis) -> tuple[alt.Chart, alt.Chart]:
    """A bar a bound, and its interval."""
    base = alt.Chart(data(rows)).encode(tooltip=_TOLD)
    bars = base.mark_bar(height=_BAR, opacity=0.55, color=colours.NEUTRAL.light)
    whiskers = base.mark_rule(strokeWidth=1.5, color=colours.TEXT.light)
    left = told_rows([f"{row['chain']}: {row['bound']}" for row in rows])
    right = told_rows([row["told"] for row in rows], orient="right")
    return (
        bars.encode(x=alt.X("from:Q", axis=axis), x2=alt.X2("to:Q"), y=left),
        whiskers.encode(x=alt.X("low:Q", axis=axis), x2=alt.X2("high:Q"), y=right),
    )


def _anchors(anchors: dict[str, Estimate], axis: alt.Axis) -> Iterator[alt.Chart]:
    """A line an arm, and above it the arm's name in a line of its own."""
    if not anchors:
        return
    rows = [
        {"arm": arm, "at": each.value, "told": told_interval(each)}
        for arm, each in anchors.items()
    ]
    at = alt.X("at:Q", axis=axis)
    rules = alt.Chart(data(rows)).mark_rule(
        strokeDash=[4, 3], strokeWidth=1.5, color=colours.FASTER.light
    )
    yield rules.encode(x=at, tooltip=tooltips(arm="arm", told="anchor, 95 % interval"))
    for line, row in enumerate(rows):
        name = alt.Chart(data([row])).mark_text(
            baseline="bottom",
            dy=-4 - _LINE * line,
            clip=False,
            color=colours.FASTER.light,
        )
        yield name.encode(x=at, y=alt.value(0), text=alt.Text("arm:N"))


def _row(place: int, bound: Bound, anchors: dict[str, Estimate]) -> dict[str, Any]:
    against = [arm for arm in anchors if bound.arm in ("", arm)]
    size, kernels = format_bytes(bound.bytes), format_things(bound.kernels, "kernel")
    ratios = (
        f"{arm} {format_number(anchors[arm].value / bound.pass_ns, 2)}"
        for arm in against
    )
    found = Estimate(bound.pass_ns, bound.low_ns, bound.high_ns, 1, 1.0)
    return {
        "place": place,
        "chain": bound.arm or _STANDARD,
        "bound": bound.name,
        "from": 0,
        "to": bound.pass_ns,
        "low": bound.low_ns,
        "high": bound.high_ns,
        "told": told_interval(found),
        "work": f"{size} by {kernels}",
        "ratios": ", ".join(ratios),
    }
