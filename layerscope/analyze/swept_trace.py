"""A placed trace with what every report on it begins with, computed once."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from layerscope.analyze.layer_finder import StepKey
from layerscope.analyze.trace_gaps import gap_causes, with_launches, without_causes
from layerscope.analyze.trace_shares import swept_kernels
from layerscope.analyze.trace_trust import Trust, trust_in
from layerscope.trace import Trace


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class SweptTrace:
    """A trace, what each of its kernels added to its device's time, and how sure."""

    trace: Trace

    kernels: pl.DataFrame
    """From `trace_gaps.gap_causes`, of all devices."""

    trust: Trust

    without_layers: Mapping[str, int] = field(default_factory=dict)
    """Why steps have no layers, and how many have none for that."""

    cut: Mapping[StepKey, int] = field(default_factory=dict)
    """Steps with layers of which only a part was recorded, and how many of these."""

    @property
    def devices(self) -> list[int | None]:
        """On which kernels ran, sorted; the one without a number comes first."""
        found = self.kernels["device"].unique().to_list()
        return sorted(found, key=lambda device: (device is not None, device))

    def on(self, device: int | None) -> pl.DataFrame:
        """The rows of `kernels` that ran on one device."""
        return self.kernels.filter(pl.col("device").eq_missing(pl.lit(device)))

    def architectures(self) -> dict[int, str]:
        """Of the devices that the trace describes."""
        return {each.device: each.architecture for each in self.trace.devices}


def sweep_trace(
    trace: Trace,
    placed: pl.DataFrame,
    without_layers: Mapping[str, int] | None = None,
    cut: Mapping[StepKey, int] | None = None,
) -> SweptTrace:
    """Compute what `SweptTrace` holds.

    Args:
        trace: as read.
        placed: its kernels, `schema.PLACED_KERNELS`.
        without_layers: why steps have no layers, where that is known.
        cut: steps with layers of which only a part was recorded, and how many.
    """
    launched = with_launches(swept_kernels(placed), trace.calls)
    caused = gap_causes(launched, trace.ranges)
    cut = cut or {}
    trust = trust_in(trace, caused, sum(cut.values()))
    is_placed = trace.ranges["kind"].eq("graph").any()
    if trust.why_no_idle and not is_placed:  # what is missing may be in any gap
        caused = without_causes(caused)
    return SweptTrace(trace, caused, trust, without_layers or {}, cut)
