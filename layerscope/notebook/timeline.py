"""What one recorder saw, as people look at it."""

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from importlib.util import find_spec

from layerscope import timeline
from layerscope.render.plain import plain
from layerscope.units import format_things

_CHARTS = ("altair", "vl_convert")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Timeline(timeline.Timeline):
    """Kernels and named ranges, and where they were recorded."""

    def __repr__(self) -> str:
        """How much was recorded, and on what."""
        return f"<Timeline: {self._told()}>"

    def _repr_html_(self) -> str:
        """How much was recorded; with the extra ``charts`` also the median passes."""
        return "\n".join((f"<p>{escape(self._told())}</p>", *self._pictures()))

    def _told(self) -> str:
        counts = (
            format_things(self.kernels.height, "kernel"),
            format_things(self.ranges.height, "range"),
        )
        return plain(f"{', '.join(counts)}, on {self.environment.device.name}")

    def _pictures(self) -> Iterator[str]:
        """A chart for every experiment that has passes to be shown."""
        if not all(map(find_spec, _CHARTS)):
            return
        from layerscope.render.charts import svg, timeline_of  # noqa: PLC0415 (extra)

        arms = self.kernels["arm"].unique(maintain_order=True).to_list()
        for kernels in self.kernels.partition_by("experiment", maintain_order=True):
            chart = timeline_of(kernels, arms)
            if chart is not None:
                yield svg(chart)
