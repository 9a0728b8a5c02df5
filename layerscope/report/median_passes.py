"""The median pass of every arm, row by row, for whoever draws it in lines of text."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import polars as pl

from layerscope.analyze.median_pass import pictured_kernels
from layerscope.analyze.tracks import with_tracks
from layerscope.experiment import CAPTURED
from layerscope.regions import in_order
from layerscope.report.document import Column, Kind, Table
from layerscope.run import Run
from layerscope.units import format_things

_COLUMNS: Final = (
    Column("region", "region", Kind.REGION),
    Column("share_ns", "share", Kind.TIME),
    Column("gap_ns", "gap", Kind.TIME),
    Column("hidden_ns", "hidden", Kind.TIME),
)
_TOTALS: Final = tuple(column.key for column in _COLUMNS[1:])


@dataclass(frozen=True, slots=True)
class Stretch:
    """A part of a row, in ns since the start of the pass."""

    kind: str
    """``kernel``: it moves the pass on; ``hidden``: it lies behind other kernels;
    ``gap``: nothing runs."""

    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Row:
    """Kernels of one region that do not overlap, and the gaps before them."""

    region: str
    stretches: tuple[Stretch, ...]
    """In order; a kernel has up to two of them, hidden first."""


@dataclass(frozen=True, slots=True)
class MedianPass:
    """The pass of an arm whose increment is the median."""

    arm: str
    increment_ns: int
    kernels: int
    rows: tuple[Row, ...]
    """Regions in order, each in as many rows as its kernels overlap."""

    table: Table
    """What each region takes of it; shares add up to the increment."""

    @property
    def title(self) -> str:
        """The arm, and how many kernels its pass has."""
        return f"{self.arm}, {format_things(self.kernels, 'kernel')}"


def drawn_passes(run: Run) -> tuple[MedianPass, ...]:
    """The median pass of every arm of `run` as captured, but of the A/A arm.

    An arm without a used pass has none.
    """
    captured = run.kernels.filter(pl.col("experiment") == CAPTURED)
    median = pictured_kernels(captured, around=0)
    arms = (arm.name for arm in run.header.study.arms)
    found = ((arm, median.filter(pl.col("arm") == arm)) for arm in arms)
    return tuple(
        MedianPass(
            arm=arm,
            increment_ns=kernels["increment_ns"].item(0),
            kernels=kernels.height,
            rows=tuple(_rows(kernels)),
            table=_table(arm, kernels),
        )
        for arm, kernels in found
        if kernels.height
    )


def _rows(kernels: pl.DataFrame) -> Iterator[Row]:
    tracks = with_tracks(kernels, ["region"]).partition_by(
        "region", "track", as_dict=True
    )
    for region in in_order(kernels["region"]):
        for key, found in sorted(tracks.items()):
            if key[0] == region:
                yield Row(region, tuple(_stretches(found)))


def _stretches(kernels: pl.DataFrame) -> Iterator[Stretch]:
    columns = ("start_ns", "end_ns", "gap_ns", "hidden_ns")
    for start_ns, end_ns, gap_ns, hidden_ns in kernels.select(columns).iter_rows():
        reached_ns = start_ns + hidden_ns
        if gap_ns:
            yield Stretch("gap", start_ns - gap_ns, start_ns)
        if hidden_ns:
            yield Stretch("hidden", start_ns, reached_ns)
        if reached_ns < end_ns or not hidden_ns:  # what takes no time is there too
            yield Stretch("kernel", reached_ns, end_ns)


def _table(arm: str, kernels: pl.DataFrame) -> Table:
    exclusive = pl.col("duration_ns") - pl.col("hidden_ns")
    sums = kernels.group_by("region").agg(
        share_ns=(pl.col("gap_ns") + exclusive).sum(),
        gap_ns=pl.col("gap_ns").sum(),
        hidden_ns=pl.col("hidden_ns").sum(),
    )
    by_region = {region: sums_ns for region, *sums_ns in sums.iter_rows()}
    totals = sums.select(pl.col(_TOTALS).sum()).row(0)
    rows = [(region, *by_region[region]) for region in in_order(by_region)]
    return Table(
        title=f"{arm}, the median pass",
        columns=_COLUMNS,
        rows=(*rows, ("total", *totals)),
        has_total=True,
    )
