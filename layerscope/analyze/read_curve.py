"""How long this machine takes to read so many cold bytes, between measured sizes."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from layerscope.run_header import ReadCost

FEWEST_READS: Final = 2
"""Calibrated reads that a line between sizes needs."""


def cold_read_ns(reads: Sequence[ReadCost], size: float) -> float:
    """The time of one kernel that reads `size` cold bytes, its launch included, in ns.

    Straight lines between the measured sizes. Fewer bytes than the smallest take as
    long as it, since what they take is latency; beyond the largest, the speed between
    the two largest goes on.

    Args:
        reads: by bytes, ascending; at least `FEWEST_READS`.
        size: bytes.
    """
    sizes = [read.bytes for read in reads]
    durations = [read.duration_ns for read in reads]
    if size <= sizes[-1]:
        return float(np.interp(size, sizes, durations))
    slope = (durations[-1] - durations[-2]) / (sizes[-1] - sizes[-2])
    return durations[-1] + slope * (size - sizes[-1])
