"""Prints how exact layerscope is, from recorded runs, as Markdown.

Usage: ``python -m benchmarks.accuracy TABLE PATH``, from the top of the checkout. Runs
are searched below PATH; for ``widths`` it is one run, for ``limits`` what
``benchmarks/limits_table.py`` printed, for ``printed`` what any script did.
docs/accuracy.md shows all tables.
"""

import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.accuracy.knocked import knock_out_table
from benchmarks.accuracy.observer import costs_table, observer_tables
from benchmarks.accuracy.planted import (
    mixtures_table,
    overlap_table,
    planted_table,
    records_table,
)
from benchmarks.accuracy.repeats import false_positives_table, widths_tables
from benchmarks.accuracy.traces_left import after_table, gaps_table

ALLOWED_PERCENT: Final = 10
"""Within which a limit must be of what was measured first."""


def limits_text(path: Path) -> str:
    """What the file `path` holds, after how many of its figures are near the first."""
    text = path.read_text(encoding="utf-8").strip("\n")
    rows = text.rpartition("\n")[0]  # the last line repeats the largest deviation
    deviations = [float(found) for found in re.findall(r"([+-]\d+\.\d)%", rows)]
    near = sum(abs(each) <= ALLOWED_PERCENT for each in deviations)
    return (
        f"{near} of {len(deviations)} figures are within {ALLOWED_PERCENT} % of the "
        f"first:\n\n```text\n{text}\n```"
    )


def printed(path: Path) -> str:
    """What the file `path` holds, as it is."""
    text = path.read_text(encoding="utf-8").strip("\n")
    return f"```text\n{text}\n```"


TABLES: Final[dict[str, Callable[[Path], str]]] = {
    "planted": planted_table,
    "overlap": overlap_table,
    "records": records_table,
    "twins": gaps_table,
    "after": after_table,
    "mixtures": mixtures_table,
    "knock-outs": knock_out_table,
    "cupti": partial(observer_tables, recorder="cupti"),
    "torch.profiler": partial(observer_tables, recorder="torch.profiler"),
    "costs": costs_table,
    "false-positives": false_positives_table,
    "widths": widths_tables,
    "limits": limits_text,
    "printed": printed,
}
"""By the name that chooses it."""


def main(arguments: list[str]) -> None:
    """Print one table."""
    match arguments:
        case [name, path] if name in TABLES and Path(path).exists():
            print(TABLES[name](Path(path)))
        case [name, path] if name in TABLES:
            sys.exit(f"there is no {path}")
        case _:
            sys.exit(f"python -m benchmarks.accuracy {'|'.join(TABLES)} PATH")


if __name__ == "__main__":
    main(sys.argv[1:])
