"""The tables that only pages have, from a run."""

import polars as pl

from layerscope.analyze.median_pass import pictured_kernels
from layerscope.analyze.statistics import pass_times
from layerscope.report import Table
from layerscope.report.evidence import capture_table, kernel_tables
from layerscope.run import Run


def of_kernels(run: Run) -> list[Table]:
    """The kernels of its median passes."""
    captured = run.kernels.filter(pl.col("experiment") == "captured")
    return list(kernel_tables(run.header, pictured_kernels(captured)))


def of_captures(run: Run) -> list[Table]:
    """Its anchors by capture."""
    return list(capture_table(run.header, pass_times(run.samples)))
