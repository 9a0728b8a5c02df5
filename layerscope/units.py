"""The only place where a number becomes text.

Everything before the renderers counts in nanoseconds, bytes and plain fractions.
Negative numbers carry a real minus sign; what is not finite was not measured and is a
dash.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1_000_000
NS_PER_S: Final = 1_000_000_000

BYTES_PER_TB: Final = 10**12

NOTHING: Final = "–"
"""What a table shows where nothing was measured."""

_TIMES: Final = (("s", NS_PER_S), ("ms", NS_PER_MS), ("µs", NS_PER_US), ("ns", 1))
_SIZES: Final = (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3), ("B", 1))
_DIGITS: Final = 4
_ESTIMATE_DIGITS: Final = 3
_COARSE_PERCENT: Final = 10


def tb_per_s(size: float, duration_ns: float) -> float | None:
    """The speed of so many bytes in so long, in TB a second; None of no time."""
    return size / BYTES_PER_TB * NS_PER_S / duration_ns if duration_ns > 0 else None


def format_ns(value_ns: float, *, signed: bool = False) -> str:
    """A time with its unit, to four significant digits: ``38.12 µs``.

    Times below a microsecond are whole nanoseconds.

    Args:
        value_ns: nanoseconds.
        signed: whether a positive value gets a plus sign.
    """
    if not math.isfinite(value_ns):
        return NOTHING
    unit, scale = _unit(value_ns, _TIMES)
    decimals = 0 if scale == 1 else _decimals(value_ns / scale, _DIGITS)
    return f"{format_number(value_ns / scale, decimals, signed=signed)} {unit}"


@dataclass(frozen=True, slots=True)
class TimeScale:
    """One unit and one number of decimals for all times of a table."""

    unit: str
    ns: int
    """Nanoseconds in the unit."""

    decimals: int

    def format(self, value_ns: float, *, signed: bool = False) -> str:
        """`value_ns` in the unit, without naming it."""
        return format_number(value_ns / self.ns, self.decimals, signed=signed)


MICROSECONDS: Final = TimeScale("µs", NS_PER_US, 2)
MILLISECONDS: Final = TimeScale("ms", NS_PER_MS, 3)


def time_scale(values_ns: Iterable[float]) -> TimeScale:
    """Microseconds, or milliseconds where any value reaches one."""
    largest = max((abs(v) for v in values_ns if math.isfinite(v)), default=0)
    return MILLISECONDS if largest >= NS_PER_MS else MICROSECONDS


def estimate_scale(
    value_ns: float, low_ns: float, high_ns: float, digits: int = _ESTIMATE_DIGITS
) -> TimeScale:
    """One unit and one number of decimals for an estimate, its interval and parts.

    There are as many decimals as show half the interval, which would else round to
    nothing beside a large value, but none below a nanosecond for its sake.

    Args:
        value_ns: the estimate, nanoseconds.
        low_ns: lower end of its interval.
        high_ns: upper end of its interval.
        digits: significant digits of the largest of them, at least.
    """
    values_ns = (value_ns, low_ns, high_ns)
    largest = max((abs(v) for v in values_ns if math.isfinite(v)), default=0)
    unit, scale = _unit(largest, _TIMES)
    decimals = _decimals(largest / scale, digits)
    half_ns = (high_ns - low_ns) / 2
    if math.isfinite(half_ns) and half_ns > 0:
        places = math.ceil(math.log10(scale / half_ns))
        decimals = max(decimals, min(places, round(math.log10(scale))))
    return TimeScale(unit, scale, decimals)


def format_bytes(value: float) -> str:
    """A size in decimal units, to four significant digits: ``442.1 MB``."""
    unit, scale = _unit(value, _SIZES)
    decimals = 0 if scale == 1 else _decimals(value / scale, _DIGITS)
    return f"{format_number(value / scale, decimals)} {unit}"


def format_percent(fraction: float, *, signed: bool = False) -> str:
    """A fraction as per cent: one decimal from 10 % on, two below: ``−29.0 %``.

    Args:
        fraction: 0.29 for 29 %.
        signed: whether a positive value gets a plus sign.
    """
    percent = 100 * fraction
    decimals = 1 if abs(percent) >= _COARSE_PERCENT else 2
    return f"{format_number(percent, decimals, signed=signed)} %"


def format_estimate(
    value_ns: float, low_ns: float, high_ns: float, relative: float
) -> str:
    """A change with its 95 % interval: ``−14.2 µs (−29.0 %, 95 % −14.6 … −13.8)``.

    Args:
        value_ns: the change, nanoseconds.
        low_ns: lower end of its interval.
        high_ns: upper end of its interval.
        relative: the change as a fraction of what it is compared with.
    """
    scale = estimate_scale(value_ns, low_ns, high_ns)
    value, low, high = (
        scale.format(item, signed=True) for item in (value_ns, low_ns, high_ns)
    )
    share = format_percent(relative, signed=True)
    return f"{value} {scale.unit} ({share}, 95 % {low} … {high})"


def format_interval(value_ns: float, low_ns: float, high_ns: float) -> str:
    """A time with its 95 % interval: ``40.00 µs (39.90 … 40.10)``.

    Args:
        value_ns: the time, nanoseconds.
        low_ns: lower end of its interval.
        high_ns: upper end of its interval.
    """
    scale = estimate_scale(value_ns, low_ns, high_ns, _DIGITS)
    value, low, high = map(scale.format, (value_ns, low_ns, high_ns))
    return f"{value} {scale.unit} ({low} … {high})"


def format_count(value: int) -> str:
    """An integer with its thousands separated: ``1,205``."""
    return format_number(value, 0)


def format_things(count: int, thing: str) -> str:
    """A count and what is counted, in the plural where that is due: ``1 row``."""
    return f"{format_count(count)} {thing}{'' if count == 1 else 's'}"


def format_number(value: float, decimals: int, *, signed: bool = False) -> str:
    """A bare number: thousands separated, a real minus, no sign where it rounds to 0.

    Args:
        value: any number; NaN and infinities become a dash.
        decimals: places after the point.
        signed: whether a positive value gets a plus sign.
    """
    if not math.isfinite(value):
        return NOTHING
    text = f"{value:+,.{decimals}f}" if signed else f"{value:,.{decimals}f}"
    if not text.strip("+-0."):
        return text.lstrip("+-")
    return text.replace("-", "−")


def _unit(value: float, units: tuple[tuple[str, int], ...]) -> tuple[str, int]:
    """The largest unit of which `value`, rounded as it will be shown, has one."""
    shown = abs(float(f"{value:.{_DIGITS - 1}e}"))
    return next((unit for unit in units if shown >= unit[1]), units[-1])


def _decimals(value: float, digits: int) -> int:
    """Places after the point that show `digits` significant digits of `value`."""
    if value == 0:
        return 0
    exponent = int(f"{value:.{digits - 1}e}".partition("e")[2])
    return max(0, digits - 1 - exponent)
