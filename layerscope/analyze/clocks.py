"""Whether the clock was the same for two arms, and what held it down."""

from typing import Final

import polars as pl

from layerscope.units import format_number

# nvml.h: nvmlClocksEventReason*
_REASONS: Final = {
    0x001: "idle",
    0x002: "application clocks setting",
    0x004: "software power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "software thermal slowdown",
    0x040: "hardware thermal slowdown",
    0x080: "hardware power brake",
    0x100: "display clock setting",
}
_HARMLESS: Final = 0x001  # the clock sank because nothing ran

_MOST_APART: Final = 0.01
"""Part by which the clocks of two arms may differ before times are not compared."""


def throttle_reasons(samples: pl.DataFrame) -> list[str]:
    """Every reason that held the clock down in any sample, idling left out."""
    bits = 0
    for value in samples["throttle_reasons"].drop_nulls().unique():
        bits |= value
    bits &= ~_HARMLESS
    named = [name for bit, name in _REASONS.items() if bits & bit]
    unknown = bits & ~sum(_REASONS)
    return [*named, *([f"unknown reason {unknown:#x}"] if unknown else [])]


def clock_doubt(samples: pl.DataFrame) -> str:
    """Why the clock may be the cause of a difference; empty where it is not.

    It may be where it was held down in any sample, and where the median SM clocks of
    two (arm, experiment) are more than 1 % apart.

    Args:
        samples: rows of `schema.SAMPLES` that are to be compared with each other.
    """
    reasons = throttle_reasons(samples)
    if reasons:
        return f"clock: held down by {', '.join(reasons)}"
    clock = pl.col("sm_clock_mhz")
    medians = (
        samples.filter(clock.is_not_null())
        .group_by("arm", "experiment")
        .agg(clock.median())
        .sort("sm_clock_mhz", "arm", "experiment")
    )
    if medians.is_empty():
        return ""
    (slow, _, low), (fast, _, high) = medians.row(0), medians.row(-1)
    if high <= (1 + _MOST_APART) * low:
        return ""
    return (
        f"clock: {format_number(low, 0)} MHz in {slow}, {format_number(high, 0)} MHz "
        f"in {fast}"
    )
