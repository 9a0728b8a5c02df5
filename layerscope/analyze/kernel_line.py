"""Kernels of a trace as numbers: what layers are looked for in."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import polars as pl

from layerscope.analyze.kernel_identity import with_identity
from layerscope.regions import Region
from layerscope.schema import INT

Ints: TypeAlias = npt.NDArray[np.int64]
Flags: TypeAlias = npt.NDArray[np.bool_]

CORES: Final = ("core", "linear_core")
"""Roles of kernels at the core of attention, or of what a layer has in its place."""

_FEEDS: Final = (Region.MOE.value, Region.MLP.value)


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth of equality
class KernelLine:
    """The kernels of one stream in one step, in order: one entry each."""

    identity: Ints
    """Equal for kernels that are the same, see `kernel_identity`; from 0, dense."""

    is_core: Flags
    """At the core of attention: one or a few a layer."""

    is_feed: Flags
    """Known to belong to an MLP or to experts."""

    is_norm: Flags
    is_root: Flags
    is_link: Flags
    """See `kernel_identity.with_identity`."""

    def __len__(self) -> int:
        """How many kernels there are."""
        return int(self.identity.size)


def rows_by(numbers: Ints) -> Iterator[Ints]:
    """The rows of each number, in order; those of negative numbers are left out."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    for begin, end in pairwise([*begins.tolist(), numbers.size]):
        if ordered[begin] >= 0:
            yield order[begin:end]


class KernelArrays(NamedTuple):
    """Kernels of any streams: one entry each."""

    step: Ints  # a number for device and step; -1 outside of steps
    lane: Ints  # a number for the stream
    start_ns: Ints
    end_ns: Ints
    identity: Ints
    is_core: Flags
    is_feed: Flags
    is_norm: Flags
    is_root: Flags
    is_link: Flags

    def line(self, rows: Ints) -> KernelLine:
        """Those at `rows`; `identity` of them is the rank among these."""
        dense = np.unique(self.identity[rows], return_inverse=True)[1]
        flags = (self.is_core, self.is_feed, self.is_norm, self.is_root, self.is_link)
        return KernelLine(dense.astype(np.int64), *(each[rows] for each in flags))

    def key(self, rows: Ints) -> bytes:
        """Equal for rows whose lines are."""
        told = (self.identity, self.is_core, self.is_feed, self.is_norm)
        return b"|".join(each[rows].tobytes() for each in told)

    def main_lane(self, rows: Ints) -> Flags:
        """Which of `rows` are on the stream that has most cores, or most of them."""
        cores = rows[self.is_core[rows]]
        counted = cores if cores.size else rows
        lanes, sizes = np.unique(self.lane[counted], return_counts=True)
        is_main: Flags = self.lane[rows] == lanes[sizes.argmax()]
        return is_main


def kernel_arrays(kernels: pl.DataFrame) -> KernelArrays:
    """Turn columns into arrays.

    Args:
        kernels: `schema.TRACE_KERNELS`, with Int64 step; String region and role, where
            known.
    """
    missing = {"region", "role"}.difference(kernels.columns)
    told = kernels.with_columns(pl.lit("").alias(name) for name in missing)
    step = pl.struct("device", "step").rank("dense").cast(INT)
    frame = with_identity(told).select(
        "start_ns",
        "identity",
        "is_norm",
        "is_root",
        "is_link",
        step=pl.when(pl.col("step").is_null()).then(-1).otherwise(step),
        lane=pl.struct("process", "context", "stream").rank("dense").cast(INT),
        end_ns=pl.col("start_ns") + pl.col("duration_ns"),
        is_core=pl.col("role").is_in(CORES).fill_null(value=False),
        is_feed=pl.col("region").is_in(_FEEDS).fill_null(value=False),
    )
    return KernelArrays(*(frame[name].to_numpy() for name in KernelArrays._fields))
