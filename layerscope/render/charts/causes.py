"""From one arm to another, cause by cause."""

import math
from typing import Any, Final, Literal

import altair as alt

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.causes import Ledger
from layerscope.render import colours
from layerscope.render.charts.look import (
    Rows,
    data,
    finished,
    time_axis,
    told_rows,
    tooltips,
)
from layerscope.units import format_estimate, format_ns, format_percent, time_scale

_ROW: Final = 30  # pixels
_BAR: Final = 16
_OUTWARDS: Final[tuple[Literal["right", "left"], ...]] = ("right", "left")
"""How the names of the left and the right arm are aligned, so that they never meet."""

_CHANGE: Final = "change"
_RESIDUAL: Final = "residual"
_KINDS: Final = {
    "faster": colours.FASTER.light,
    "slower": colours.SLOWER.light,
    "neither": colours.NEUTRAL.light,
}
_HOW: Final = (
    "every cause with its 95 % interval; to the left is faster; causes and residual "
    "add up to the change"
)
_HOW_OBSERVED: Final = (
    "observed: no interval is known; to the left is faster; causes add up to the change"
)
_TOLD: Final = tooltips(name="cause", told="change, 95 % interval")


def ledger(found: Ledger) -> alt.LayerChart | None:
    """A waterfall from the base to the other arm, every cause with its 95 % interval.

    Where nothing can be attributed, the change alone, and why.

    Args:
        found: of two arms.

    Returns:
        None where the arms were not measured in the same round.
    """
    if not math.isfinite(found.change.value):
        return None
    lines = [(line.cause.value, line.change) for line in found.lines]
    is_known = math.isfinite(found.change.low)
    if lines and is_known:
        lines.append((_RESIDUAL, found.residual))
    rows: Rows = []
    at_ns = found.base_ns
    for name, change in lines:
        rows.append(_row(len(rows), name, change, at_ns, found.base_ns))
        at_ns += change.value
    rows.append(_row(len(rows), _CHANGE, found.change, found.base_ns, found.base_ns))
    how = _HOW if is_known else _HOW_OBSERVED
    if found.unknown:
        how = f"nothing can be attributed: {found.unknown}"
    return finished(
        _chart(found, rows),
        f"from {found.base} to {found.other}",
        [how],
        height=_ROW * len(rows),
        zooms=True,
    )


def _row(
    place: int, name: str, change: Estimate, start_ns: float, base_ns: float
) -> dict[str, Any]:
    """A bar from where the causes above it lead, and its interval at its end."""
    is_known = math.isfinite(change.low)
    is_open = change.low <= 0 <= change.high if is_known else change.value == 0
    is_open |= name == _RESIDUAL
    kind = "faster" if change.value < 0 else "slower"
    relative = change.value / base_ns if base_ns else math.nan
    return {
        "place": place,
        "name": name,
        "kind": "neither" if is_open else kind,
        "from": start_ns,
        "to": start_ns + change.value,
        "low": start_ns + change.low,
        "high": start_ns + change.high,
        "told": _told(change, relative),
    }


def _told(change: Estimate, relative: float) -> str:
    """The change, with its interval where one is known."""
    if math.isfinite(change.low):
        return format_estimate(change.value, change.low, change.high, relative)
    share = format_percent(relative, signed=True)
    return f"{format_ns(change.value, signed=True)} ({share})"


def _ends(found: Ledger) -> Rows:
    """Where both arms are, from the left."""
    ends = {found.base: found.base_ns, found.other: found.base_ns + found.change.value}
    rows = [{"arm": arm, "at": at_ns} for arm, at_ns in ends.items()]
    return sorted(rows, key=lambda row: row["at"])


def _chart(found: Ledger, rows: Rows) -> alt.LayerChart:
    scale = time_scale([found.base_ns])
    axis = time_axis(scale.unit, scale.ns, title="time of a pass")
    across = alt.Scale(zero=False, nice=False, padding=20)
    left = told_rows([row["name"] for row in rows])
    right = told_rows([row["told"] for row in rows], orient="right")
    base = alt.Chart(data(rows)).encode(tooltip=_TOLD)
    bars = base.mark_bar(height=_BAR, clip=True, opacity=0.8).encode(
        x=alt.X("from:Q", axis=axis, scale=across),
        x2=alt.X2("to:Q"),
        y=left,
        color=alt.Color(
            "kind:N",
            scale=alt.Scale(domain=list(_KINDS), range=list(_KINDS.values())),
            legend=None,
        ),
    )
    whiskers = base.mark_rule(
        strokeWidth=1.5, color=colours.TEXT.light, clip=True
    ).encode(x=alt.X("low:Q", axis=axis, scale=across), x2=alt.X2("high:Q"), y=right)
    ends = _ends(found)
    arms = alt.Chart(data(ends)).encode(
        x=alt.X("at:Q", axis=axis, scale=across), tooltip=tooltips(arm="arm")
    )
    rules = arms.mark_rule(strokeDash=[4, 3], color=colours.MUTED.light, clip=True)
    left_arm, right_arm = (
        alt.Chart(data([end]))
        .mark_text(dy=-6, baseline="bottom", align=align, clip=False)
        .encode(
            x=alt.X("at:Q", axis=axis, scale=across),
            y=alt.value(0),
            text=alt.Text("arm:N"),
        )
        for end, align in zip(ends, _OUTWARDS, strict=True)
    )
    layers = alt.layer(rules, bars, whiskers, left_arm, right_arm)
    chart: alt.LayerChart = layers.resolve_axis(y="independent")
    return chart
