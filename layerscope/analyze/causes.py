"""Why one arm's time differs from another's, as data: causes, lines and the ledger."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from layerscope.analyze.bootstrap import Estimate


class Cause(StrEnum):
    """A line of the ledger; every one is B minus A, negative where B is faster."""

    OVERLAP = "overlap"
    """What running kernels beside each other saves, against the serial twins."""

    LAUNCHES = "fewer launches"
    """Gaps before kernels that have no counterpart."""

    GAPS = "shorter gaps"
    """Gaps before kernels that have one."""

    SAME = "same code"
    """Durations of kernels of equal code, grid and block."""

    FASTER = "faster kernels"
    """Durations of kernels of one role and different code."""

    MERGED = "merged or split"
    """Durations of kernels whose roles are served by more kernels, or fewer."""

    ADDED = "added or removed"
    """Durations of kernels whose role the other arm does not have."""

    REPLACED = "replaced, not separable"
    """Durations of kernels with neither a role nor equal code on the other side."""

    MIXED = "gaps or kernels, not separable"
    """Gaps and durations together, where the records of an arm do not tell which is
    which; there is then no other line."""


FUSION = (Cause.LAUNCHES, Cause.MERGED, Cause.ADDED)
"""The lines whose sum is what fusion gave."""


@dataclass(frozen=True, slots=True)
class Line:
    """What one cause contributes to the change, in ns a pass."""

    cause: Cause
    change: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Corners:
    """The times of a pass of both arms, captured and serial, in ns: the 2 x 2."""

    base: Estimate
    base_serial: Estimate
    other: Estimate
    other_serial: Estimate

    base_benefit: Estimate
    """Serial minus captured of the base: what overlap gives its kernels."""

    other_benefit: Estimate
    """The same of the other arm."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The change from arm `base` to arm `other`, cause by cause; closes by a residual.

    ``change = sum of lines + residual``. The residual is what the lines leave; it is
    printed and never forced to zero. It holds, too, what the median of a sum differs
    from the sum of medians. Without any lines, all of the change is residual.
    """

    base: str
    other: str

    basis: Literal["experiments", "observed"]
    """``experiments``: overlap is from serial twins. ``observed``: from records alone,
    where no experiment was made; hidden time is then shown and never a line."""

    change: Estimate
    """Other minus base, in ns: of anchors by experiments, else of profiled passes, or
    of anchors where no round was recorded of both."""

    base_ns: float
    """The base's time of a pass, which changes are relative to."""

    lines: tuple[Line, ...]
    """In the order of `Cause`, of every cause that can occur on this basis; none where
    nothing can be attributed."""

    residual: Estimate

    regions: Mapping[str, Mapping[Cause, Estimate]]
    """The lines that are from records, region by region, each with all of these."""

    corners: Corners | None = None
    """By experiments only."""

    hidden: Mapping[str, float] = field(default_factory=dict)
    """Mean time of kernels behind others, by arm, in ns a pass; on records of the
    captured graphs."""

    unknown: str = ""
    """Why nothing can be attributed, such as "clock: ..."; empty where it can."""

    notes: tuple[str, ...] = ()
    """What a reader must know of this ledger."""

    @property
    def fusion(self) -> float:
        """The sum of the lines of `FUSION`, in ns."""
        return sum(line.change.value for line in self.lines if line.cause in FUSION)
