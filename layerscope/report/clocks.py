"""Clocks, temperature and throttling of a run, in words."""

from collections.abc import Iterator

import polars as pl

from layerscope.analyze.clocks import throttle_reasons
from layerscope.report.document import Fact
from layerscope.units import format_count, format_number


def clock_facts(samples: pl.DataFrame) -> Iterator[Fact]:
    """What NVML told while samples were taken; nothing where it told nothing."""
    clocks = samples["sm_clock_mhz"].drop_nulls()
    if clocks.is_empty():
        return
    memory = _range(samples["memory_clock_mhz"])
    yield Fact(
        "clocks",
        f"SM {_range(clocks)} MHz, memory {memory} MHz (median, lowest … highest)",
    )
    watts = [value / 1000 for value in samples["power_mw"].drop_nulls()]
    power = f", up to {format_number(max(watts), 0)} W" if watts else ""
    hot = samples["temperature_c"].drop_nulls().to_list()
    heat = f"up to {max(hot)} °C" if hot else "temperature unknown"
    reasons = throttle_reasons(samples)
    yield Fact(
        "heat", f"{heat}{power}; throttled by: {', '.join(reasons) or 'nothing'}"
    )


def _range(values: pl.Series) -> str:
    """Median, lowest and highest of a column of integers; a dash without any."""
    known = sorted(values.drop_nulls())
    if not known:
        return "–"
    middle = known[len(known) // 2]
    lowest, highest = format_count(known[0]), format_count(known[-1])
    return f"{format_count(middle)} ({lowest} … {highest})"
