"""A run, as people look at it."""

import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

from layerscope import run as runs
from layerscope.analyze import verdicts
from layerscope.analyze.causes import Ledger
from layerscope.analyze.observed import ledger_between
from layerscope.analyze.shares import pass_shares, region_table
from layerscope.analyze.statistics import compare, noise_floor, pass_times
from layerscope.errors import InputError, MeasurementError
from layerscope.experiment import CAPTURED
from layerscope.notebook.comparison import Comparison, RunComparison
from layerscope.notebook.timeline import Timeline
from layerscope.render.fragment import report_fragment
from layerscope.report import build_report
from layerscope.report.across_runs import compare_runs
from layerscope.report.arms import arm_names, check_arm
from layerscope.report.comparison import compare_arms
from layerscope.schema import RANGES, empty
from layerscope.trace_spec import TraceSpec

if TYPE_CHECKING:  # it needs an extra
    from layerscope.notebook.plots import Plots


_OBSERVED: Final = "observed in a trace, which says nothing of how much it varies"


class Run(runs.Run):
    """A study and what was measured; a notebook shows its report.

    ``samples`` and ``kernels`` are frames of `layerscope.schema`.
    """

    __slots__ = ()

    draft: "Run | None"
    """The run of the study's draft, where there is one."""

    @classmethod
    def of(cls, run: runs.Run) -> "Run":
        """`run`, and its draft, with all that people need."""
        values = {field.name: getattr(run, field.name) for field in fields(run)}
        draft = None if run.draft is None else cls.of(run.draft)
        return cls(**(values | {"draft": draft}))

    @property
    def regions(self) -> pl.DataFrame:
        """How the profiled passes of every graph divide among regions.

        See `layerscope.analyze.shares.region_table`; times in ns.
        """
        return region_table(pass_shares(self.kernels))

    @property
    def plot(self) -> "Plots":
        """Charts: ``run.plot.timeline()`` and others.

        Raises:
            MeasurementError: the extra ``charts`` is not installed.
        """
        try:
            from layerscope.notebook.plots import Plots  # noqa: PLC0415 (an extra)
        except ModuleNotFoundError as error:
            msg = f"plot needs {error.name}; pip install 'layerscope[charts]'"
            raise MeasurementError(msg) from error
        return Plots(self)

    def compare(self, base: str, other: str) -> Comparison:
        """Arm `other` against arm `base`: the difference, and what it comes from.

        Raises:
            InputError: an arm is not in the run, or both are one.
        """
        report = compare_arms(self, (base, other))
        ledger = ledger_between(self, base, other)
        found = self._difference(base, other, ledger)
        return Comparison(
            difference=found.difference,
            relative=found.relative,
            verdict=found.verdict,
            reason=found.reason,
            ledger=ledger,
            report=report,
        )

    def _difference(self, base: str, other: str, ledger: Ledger) -> verdicts.Comparison:
        """The difference of anchors, or of a trace that of what was observed."""
        if isinstance(self.header.study.spec, TraceSpec):
            change = ledger.change
            relative = change.value / ledger.base_ns if ledger.base_ns else math.nan
            return verdicts.Comparison(
                change, relative, verdicts.Verdict.UNKNOWN, _OBSERVED
            )
        times = pass_times(self.samples)
        first, *_, again = arm_names(self)
        return compare(times, base, other, noise_floor(times, first, again))

    def compare_run(
        self,
        other: runs.Run,
        arms: tuple[str, str] | None = None,
        *,
        anyway: bool = False,
    ) -> RunComparison:
        """Run `other` against this one: their anchors, or of a trace what was observed.

        Args:
            other: what is compared.
            arms: one of this run and one of `other`; None takes all of equal names.
            anyway: whether runs that differ in work or machine are compared and marked.

        Raises:
            InputError: they differ, an arm is missing, or none is in both.
        """
        return RunComparison(compare_runs(self, other, arms, anyway=anyway))

    def timeline(self, arm: str, experiment: str = CAPTURED) -> Timeline:
        """What was recorded of one graph of `arm`.

        Args:
            arm: which one.
            experiment: which of its graphs, such as ``serial``.

        Raises:
            InputError: there is no such arm, or its graph was not recorded.
        """
        check_arm(self, arm)
        own = self.kernels.filter(pl.col("arm") == arm)
        kernels = own.filter(pl.col("experiment") == experiment)
        if kernels.is_empty():
            recorded = ", ".join(own["experiment"].unique().sort()) or "nothing"
            msg = f"{experiment!r} of {arm} was not recorded; {recorded} was"
            raise InputError(msg)
        return Timeline(kernels, empty(RANGES), self.header.environment)

    def _repr_html_(self) -> str:
        return report_fragment(build_report(self))


def load(path: Path | str) -> Run:
    """Read the run in the folder `path`.

    Raises:
        InputError: there is no such folder, or it is not a run.
        RecordError: a file is damaged, misses columns, or is of a newer format.
    """
    return Run.of(runs.load(path))
