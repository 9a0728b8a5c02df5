"""Recorded passes as a trace that Perfetto shows, https://ui.perfetto.dev.

The format is TrackEvent, in the fields that the viewers of 2021 know and those of today
take. https://perfetto.dev/docs/reference/synthetic-track-event describes it.
"""

from layerscope.render.perfetto.export import Exported, export_all, export_median

__all__ = ["Exported", "export_all", "export_median"]
