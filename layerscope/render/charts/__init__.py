"""Charts of a run, for pages and notebooks; the extra ``charts`` must be installed.

Every chart is a layered one, so that it can be as wide as what holds it, and says in
tooltips what its marks are. Its colours are those for a light page; `dark` gives it
those for a dark one. What has nothing to draw is None.
"""

from layerscope.render.charts.bounds import limits, limits_of
from layerscope.render.charts.causes import ledger
from layerscope.render.charts.look import dark, svg
from layerscope.render.charts.regions import shares, shares_of
from layerscope.render.charts.spread import samples, samples_of
from layerscope.render.charts.takeouts import knockouts, knockouts_of
from layerscope.render.charts.timeline import (
    pictured_timeline,
    timeline,
    timeline_of,
)

__all__ = [
    "dark",
    "knockouts",
    "knockouts_of",
    "ledger",
    "limits",
    "limits_of",
    "pictured_timeline",
    "samples",
    "samples_of",
    "shares",
    "shares_of",
    "svg",
    "timeline",
    "timeline_of",
]
