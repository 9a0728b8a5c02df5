"""A `Timeline`: what one recorder, or one file of another tool, saw."""

from dataclasses import dataclass

import polars as pl

from layerscope.environment import Environment
from layerscope.schema import KERNELS, RANGES, conform


@dataclass(frozen=True, slots=True, eq=False)  # frames have no single truth of equality
class Timeline:
    """Kernels and named ranges of one capture, and where they were recorded."""

    kernels: pl.DataFrame
    """`schema.KERNELS`."""

    ranges: pl.DataFrame
    """`schema.RANGES`."""

    environment: Environment

    def __post_init__(self) -> None:
        """Check both frames once; raises `RecordError` where one does not conform."""
        kernels = conform(self.kernels, KERNELS, what="kernels")
        object.__setattr__(self, "kernels", kernels)
        object.__setattr__(self, "ranges", conform(self.ranges, RANGES, what="ranges"))
