"""How the times of passes scatter, and how well a difference can be known."""

from collections.abc import Mapping
from typing import Final

import altair as alt
import polars as pl

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.statistics import ANCHOR, anchor, pass_times
from layerscope.experiment import CAPTURED
from layerscope.render import colours
from layerscope.render.charts.look import (
    Rows,
    data,
    finished,
    levels,
    tick_count,
    told_interval,
    tooltips,
)
from layerscope.run import Run
from layerscope.study import AA_SUFFIX
from layerscope.units import format_ns, format_percent

_ROW: Final = 78  # pixels
_SPREAD: Final = 0.64
"""Part of a row over which the captures of its arm lie."""

_PERCENT: Final = "(datum.value ? format(100 * datum.value, '+.3~g') : '0') + ' %'"
_HOW: Final = (
    "a dot is a round, a line of dots a capture; upright: the anchor and its interval",
    "the A/A arm is the first one captured again; it stands against the first's anchor",
)


def samples(run: Run) -> alt.LayerChart | None:
    """Every round's time of a pass, against the anchor of its arm; the A/A arm too.

    Arms differ by far more than their rounds do, so each is drawn around its own
    anchor, and the A/A arm around that of the first: its shift is what noise can do.

    Returns:
        None where no whole round was sampled.
    """
    times = pass_times(run.samples)
    arms = (arm.name for arm in run.header.study.all_arms)
    return samples_of(times, {arm: anchor(times, arm) for arm in arms})


def samples_of(
    times: pl.DataFrame, anchors: Mapping[str, Estimate]
) -> alt.LayerChart | None:
    """As `samples`, for who has the anchors already.

    Args:
        times: from `pass_times`.
        anchors: of every arm, from above.
    """
    sampled = {arm: each for arm, each in anchors.items() if each.samples}
    if not sampled:
        return None
    around_ns = {arm: _around(sampled, arm) for arm in sampled}
    labels = levels([[arm, format_ns(each.value)] for arm, each in sampled.items()])
    whole = times.filter(pl.col("phase") == ANCHOR, pl.col("experiment") == CAPTURED)
    rounds = _dots(_rounds(whole, around_ns)).encode(y=labels)
    return finished(
        alt.layer(rounds, *_marks(_estimates(sampled, around_ns))),
        "scatter of unprofiled passes",
        _HOW,
        height=_ROW * len(sampled),
        zooms=True,
    )


def _dots(rows: Rows) -> alt.Chart:
    """A dot a round."""
    axis = alt.Axis(
        title="difference from the anchor",
        labelExpr=_PERCENT,
        tickCount=tick_count(),
        labelFlush=False,
    )
    scale = alt.Scale(zero=False, nice=False, padding=12)
    circles = alt.Chart(data(rows)).mark_circle(
        size=18, opacity=0.55, color=colours.FASTER.light, clip=True
    )
    dots: alt.Chart = circles.encode(
        x=alt.X("part:Q", axis=axis, scale=scale),
        tooltip=tooltips(
            arm="arm",
            capture="capture",
            round="round",
            time="a pass",
            told="difference",
        ),
    )
    return dots


def _marks(rows: Rows) -> tuple[alt.Chart, alt.Chart]:
    """The interval of every anchor, and the anchor in it."""
    base = alt.Chart(data(rows)).encode(
        y=alt.Y("top:Q"),
        y2=alt.Y2("bottom:Q"),
        tooltip=tooltips(arm="arm", told="anchor, 95 % interval"),
    )
    intervals = base.mark_rect(opacity=0.15, color=colours.TEXT.light, clip=True)
    middles = base.mark_rule(strokeWidth=2, color=colours.TEXT.light, clip=True)
    return (
        intervals.encode(x=alt.X("low:Q"), x2=alt.X2("high:Q")),
        middles.encode(x=alt.X("part:Q")),
    )


def _around(anchors: dict[str, Estimate], arm: str) -> float:
    """The anchor that an arm stands against: its own, or the first one's."""
    first = anchors.get(arm.removesuffix(AA_SUFFIX), anchors[arm])
    return first.value


def _rounds(times: pl.DataFrame, around_ns: dict[str, float]) -> Rows:
    arms = list(around_ns)
    captures = sorted(set(times["capture"]))
    step = _SPREAD / max(len(captures), 1)
    rows: Rows = []
    for arm, capture, round_, pass_ns in times.select(
        "arm", "capture", "round", "pass_ns"
    ).iter_rows():
        part = pass_ns / around_ns[arm] - 1
        line = captures.index(capture) - (len(captures) - 1) / 2
        rows.append(
            {
                "level": arms.index(arm) + line * step,
                "part": part,
                "arm": arm,
                "capture": capture,
                "round": round_,
                "time": format_ns(pass_ns),
                "told": format_percent(part, signed=True),
            }
        )
    return rows


def _estimates(anchors: dict[str, Estimate], around_ns: dict[str, float]) -> Rows:
    return [
        {
            "top": place - _SPREAD / 2,
            "bottom": place + _SPREAD / 2,
            "part": found.value / around_ns[arm] - 1,
            "low": found.low / around_ns[arm] - 1,
            "high": found.high / around_ns[arm] - 1,
            "arm": arm,
            "told": told_interval(found),
        }
        for place, (arm, found) in enumerate(anchors.items())
    ]
