"""Numbers and tables in Markdown."""

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median

from layerscope.analyze.bootstrap import Estimate
from layerscope.run import HEADER_FILE, Run, load
from layerscope.units import MICROSECONDS, NOTHING, format_number, format_percent


def table(
    words: Sequence[str],
    numbers: Sequence[str],
    rows: Iterable[Sequence[str]],
    remarks: Sequence[str] = (),
) -> str:
    """A table with columns of text, of numbers, and of text again.

    Args:
        words: heads of the first columns.
        numbers: heads of the next.
        rows: a cell for each column.
        remarks: heads of the last columns.
    """
    sides = ["---|"] * len(words) + ["--:|"] * len(numbers) + ["---|"] * len(remarks)
    lines = [
        "| " + " | ".join((*words, *numbers, *remarks)) + " |",
        "|" + "".join(sides),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(lines)


def plus_minus(found: Estimate, *, signed: bool = True) -> str:
    """A time in µs and half of its interval: ``+18.02 ± 0.84``."""
    if not found.samples:
        return NOTHING
    value = MICROSECONDS.format(found.value, signed=signed)
    return f"{value} ± {MICROSECONDS.format((found.high - found.low) / 2)}"


def within(found: Estimate) -> str:
    """A change in µs with the ends of its interval: ``−8.25 (−8.71 … −7.38)``."""
    if not found.samples:
        return NOTHING
    value, low, high = (
        MICROSECONDS.format(ns, signed=True)
        for ns in (found.value, found.low, found.high)
    )
    return f"{value} ({low} … {high})"


def percent(fraction: float, *, signed: bool = True) -> str:
    """A fraction as per cent; a dash where there is none, as of a change of nothing."""
    return NOTHING if math.isnan(fraction) else format_percent(fraction, signed=signed)


def spread(values: Sequence[float], decimals: int) -> str:
    """Their median, the least and the most: ``161 (99 … 1,122)``; or the only one."""
    middle, least, most = (
        format_number(each, decimals)
        for each in (median(values), min(values), max(values))
    )
    return middle if len(values) == 1 else f"{middle} ({least} … {most})"


def runs_in(folder: Path) -> Iterator[tuple[str, Run]]:
    """Every run below `folder`, those of drafts too, by its path there, sorted."""
    for path in sorted(file.parent for file in folder.rglob(HEADER_FILE)):
        yield path.relative_to(folder).as_posix(), load(path)
