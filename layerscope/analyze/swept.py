"""A run with what most analyses of it begin with, computed once for all of them."""

from dataclasses import dataclass

import polars as pl

from layerscope.analyze.pass_times import pass_times
from layerscope.analyze.shares import kernel_shares
from layerscope.experiment import CAPTURED
from layerscope.run import Run
from layerscope.run_header import RunHeader


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class SweptRun:
    """A run, its times of a pass, and what each kernel added to its pass."""

    run: Run

    times: pl.DataFrame
    """`pass_times.pass_times` of its samples."""

    kernels: pl.DataFrame
    """`shares.kernel_shares` of its kernels."""

    @property
    def header(self) -> RunHeader:
        """That of the run."""
        return self.run.header

    def graph(self, arm: str, experiment: str = CAPTURED) -> pl.DataFrame:
        """The rows of `kernels` that one graph of one arm has."""
        return self.kernels.filter(
            pl.col("arm") == arm, pl.col("experiment") == experiment
        )


def sweep_run(run: Run) -> SweptRun:
    """Compute what `SweptRun` holds, of a whole run or of a partial one."""
    return SweptRun(run, pass_times(run.samples), kernel_shares(run.kernels))
