"""Titled tables with units, and the facts beside them, for any renderer."""

from layerscope.report.build import build_report
from layerscope.report.document import (
    Cell,
    Column,
    Fact,
    Interval,
    Kind,
    Report,
    Table,
    Traffic,
)

__all__ = [
    "Cell",
    "Column",
    "Fact",
    "Interval",
    "Kind",
    "Report",
    "Table",
    "Traffic",
    "build_report",
]
