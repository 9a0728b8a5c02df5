"""Arms and runs against each other, as people look at them."""

from dataclasses import dataclass

from layerscope.analyze import verdicts
from layerscope.analyze.causes import Ledger
from layerscope.render.fragment import report_fragment
from layerscope.render.plain import plain
from layerscope.report import Report


@dataclass(frozen=True, slots=True, repr=False)
class RunComparison:
    """Two runs against each other, arm by arm."""

    report: Report
    """What differs, as titled tables."""

    def __repr__(self) -> str:
        """The headlines, a line each."""
        told = (f"{fact.label}: {fact.text}" for fact in self.report.headlines)
        return plain(f"<RunComparison {'; '.join(told)}>")

    def _repr_html_(self) -> str:
        return report_fragment(self.report)


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(verdicts.Comparison):
    """The difference of two arms, with its interval, and what it comes from."""

    ledger: Ledger
    """The difference cause by cause."""

    report: Report
    """Both as titled tables."""

    def __repr__(self) -> str:
        """The headline: the change, its interval, and its causes."""
        (headline, *_) = self.report.headlines
        return plain(f"<Comparison {headline.label}: {headline.text}>")

    def _repr_html_(self) -> str:
        return report_fragment(self.report)
