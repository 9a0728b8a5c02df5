"""What the same arm measured twice shows: false positives, and widths of intervals."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Final

import polars as pl

from benchmarks.accuracy.markdown import runs_in, table
from layerscope.analyze.bootstrap import estimate
from layerscope.analyze.false_positives import FalsePositives, false_positive_rate
from layerscope.analyze.statistics import ANCHOR, anchor, paired, pass_times
from layerscope.analyze.verdicts import pair_rounds
from layerscope.experiment import CAPTURED
from layerscope.run import load
from layerscope.units import format_number, format_percent

CAPTURE_SPLITS: Final = 200
ROUND_SPLITS: Final = 50
"""Of one run, at most."""

CAPTURES: Final = (3, 5, 8)
RESAMPLES: Final = 1000


@dataclass(frozen=True, slots=True)
class Repeat:
    """A run by its A/A arm."""

    captures: int
    differs: bool
    """Whether the interval of the A/A difference, as measured, excludes zero."""

    by_capture: FalsePositives
    by_round: FalsePositives


def repeats(folder: Path) -> Iterator[Repeat]:
    """Every run below `folder` whose A/A arm can be judged."""
    for _, run in runs_in(folder):
        first, *_, again = (arm.name for arm in run.header.study.all_arms)
        times = pass_times(run.samples).filter(
            pl.col("phase") == ANCHOR, pl.col("experiment") == CAPTURED
        )
        found = paired(times, first, again)
        by_capture, by_round = (
            false_positive_rate(
                times, first, again, unit="capture", splits=CAPTURE_SPLITS
            ),
            false_positive_rate(times, first, again, unit="round", splits=ROUND_SPLITS),
        )
        if by_capture.splits:
            yield Repeat(
                captures=times.filter(pl.col("arm") == again)["capture"].n_unique(),
                differs=not found.low <= 0 <= found.high,
                by_capture=by_capture,
                by_round=by_round,
            )


def false_positives_table(folder: Path) -> str:
    """How often an arm differs from itself, by the number of captures."""
    found = list(repeats(folder))
    counts = sorted({each.captures for each in found})
    groups = [(str(n), [each for each in found if each.captures == n]) for n in counts]
    heads = ("splits", "interval alone", "verdict")
    return table(
        ("captures",),
        (
            "runs",
            "as measured, interval alone",
            *(f"captures swapped: {head}" for head in heads),
            *(f"rounds swapped: {head}" for head in heads),
        ),
        (_repeats_row(name, each) for name, each in (*groups, ("all", found))),
    )


def _repeats_row(name: str, found: list[Repeat]) -> tuple[str, ...]:
    return (
        name,
        str(len(found)),
        str(sum(each.differs for each in found)),
        *_shares([each.by_capture for each in found]),
        *_shares([each.by_round for each in found]),
    )


def _shares(found: list[FalsePositives]) -> tuple[str, str, str]:
    """How many splits there are, and the parts of them that were called different."""
    splits = sum(each.splits for each in found)
    interval, verdict = (
        sum(getattr(each, name) * each.splits for each in found) / splits
        for name in ("interval", "verdict")
    )
    return (
        format_number(splits, 0),
        format_percent(interval),
        format_percent(verdict),
    )


def widths_tables(path: Path) -> str:
    """Half widths of the paired intervals in the run `path`, by rounds and captures."""
    run = load(path)
    times = pass_times(run.samples).filter(
        pl.col("phase") == ANCHOR, pl.col("experiment") == CAPTURED
    )
    base, *others = (arm.name for arm in run.header.study.all_arms)
    layer_ns = anchor(times, base).value
    tables = (
        _widths_table(other, pair_rounds(times, base, other), layer_ns)
        for other in others
    )
    return "\n\n".join(tables)


def _widths_table(other: str, pairs: pl.DataFrame, layer_ns: float) -> str:
    captures = pairs["capture"].n_unique()
    rounds = min(pairs.group_by("capture").len()["len"])
    sizes = [size for size in CAPTURES if size <= captures]
    rows = (
        (
            str(count),
            *(
                f"{format_percent(half_width(pairs, size, count) / layer_ns)} "
                f"({size * count})"
                for size in sizes
            ),
        )
        for count in (2**power for power in range(rounds.bit_length()))
    )
    heads = [f"{size} captures" for size in sizes]
    return table((f"{other}: rounds a capture",), heads, rows)


def half_width(pairs: pl.DataFrame, captures: int, rounds: int) -> float:
    """Half of the interval, in ns, that a part of the rounds would have given.

    The median over all choices of captures.

    Args:
        pairs: from `pair_rounds`.
        captures: how many are chosen.
        rounds: how many of each are taken, the first ones.
    """
    first = pairs.filter(pl.int_range(pl.len()).over("capture") < rounds)
    halves = []
    for chosen in combinations(sorted(pairs["capture"].unique()), captures):
        part = first.filter(pl.col("capture").is_in(chosen))
        found = estimate(part, "change_ns", resamples=RESAMPLES)
        halves.append((found.high - found.low) / 2)
    return median(halves)
