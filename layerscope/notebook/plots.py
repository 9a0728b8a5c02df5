"""The charts of a run, one method each; the extra ``charts`` must be installed."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import altair as alt

from layerscope import run as runs
from layerscope.analyze.observed import ledger_between
from layerscope.errors import InputError
from layerscope.render import charts
from layerscope.report.arms import arm_names, check_arm, check_arms

_WIDTH: Final = 760  # pixels; notebooks do not say how wide they are


@dataclass(frozen=True, slots=True)
class Plots:
    """Charts of `run` by altair: shown by a notebook, saved by ``save("x.png")``.

    Pictures (PNG, SVG, PDF) need no browser. Each method takes ``dark``, for a dark
    page, and raises `InputError` where the run has nothing to draw.
    """

    run: runs.Run

    def timeline(
        self, arms: Sequence[str] | str | None = None, *, dark: bool = False
    ) -> alt.LayerChart:
        """The median pass of each arm, on one axis of time.

        Args:
            arms: which, from above, or one; None takes all but the A/A arm.
            dark: whether it is for a dark page.
        """
        arms = [arms] if isinstance(arms, str) else arms
        for arm in arms or ():
            check_arm(self.run, arm)
        lacking = "no pass was recorded"
        return self._shown(charts.timeline(self.run, arms), lacking, dark=dark)

    def ledger(
        self, base: str | None = None, other: str | None = None, *, dark: bool = False
    ) -> alt.LayerChart:
        """A waterfall from one arm to another, cause by cause.

        Args:
            base: what is compared with; None is the first arm, or the second where
                `other` is the first.
            other: what is compared; None is the second arm, or the first where `base`
                is the second.
            dark: whether it is for a dark page.
        """
        names = arm_names(self.run)
        if len(names) == 1:
            msg = f"{self.run.path} has one arm, {names[0]}; a ledger is of two"
            raise InputError(msg)
        first, second, *_ = names
        base = base or (second if other == first else first)
        other = other or (first if base == second else second)
        check_arms(self.run, (base, other))
        drawn = charts.ledger(ledger_between(self.run, base, other))
        return self._shown(drawn, f"no round has both {base} and {other}", dark=dark)

    def shares(self, *, dark: bool = False) -> alt.LayerChart:
        """Where the time of a pass of each arm goes, region by region."""
        return self._shown(charts.shares(self.run), "no pass was recorded", dark=dark)

    def samples(self, *, dark: bool = False) -> alt.LayerChart:
        """How unprofiled passes scatter, the A/A arm's too."""
        lacking = "no whole round was sampled"
        return self._shown(charts.samples(self.run), lacking, dark=dark)

    def knockouts(self, *, dark: bool = False) -> alt.LayerChart:
        """What regions cost by shares, and where they are taken out."""
        lacking = "no region was taken out of a graph"
        return self._shown(charts.knockouts(self.run), lacking, dark=dark)

    def limits(self, *, dark: bool = False) -> alt.LayerChart:
        """How far the arms are from what bytes and dependencies alone would cost."""
        return self._shown(charts.limits(self.run), "no bound was measured", dark=dark)

    def _shown(
        self, chart: alt.LayerChart | None, lacking: str, *, dark: bool
    ) -> alt.LayerChart:
        if chart is None:
            msg = f"{self.run.path} has nothing to draw: {lacking}"
            raise InputError(msg)
        shown = charts.dark(chart) if dark else chart
        return shown.properties(width=_WIDTH)
