"""The ranks of a job on one clock: what each waits for, and how sure that is."""

from collections.abc import Iterator
from typing import Final

import polars as pl

from layerscope.analyze.rank_alignment import RankAlignment
from layerscope.report.document import Cell, Column, Fact, Kind, Report, Table
from layerscope.units import format_count, format_ns, format_percent, format_things

_RANKS: Final = (
    Column("rank", "rank", Kind.TEXT),
    Column("offset_ns", "clock", Kind.CHANGE),
    Column("error_ns", "error", Kind.TIME),
    Column("collectives", "collectives", Kind.COUNT),
    Column("late", "last to come", Kind.COUNT),
    Column("duration_ns", "in collectives", Kind.TIME),
    Column("wait_ns", "waits", Kind.TIME),
    Column("transfer_ns", "transfers", Kind.TIME),
)
_KINDS: Final = (
    Column("collective", "collective", Kind.TEXT),
    Column("group", "group", Kind.TEXT),
    Column("ranks", "ranks", Kind.COUNT),
    Column("count", "times", Kind.COUNT),
    Column("skew_ns", "arrival skew", Kind.TIME),
    Column("skew_median_ns", "median", Kind.TIME),
    Column("transfer_ns", "transfer", Kind.TIME),
    Column("transfer_median_ns", "median", Kind.TIME),
    Column("end_spread_ns", "ends apart", Kind.TIME),
)
_WORST: Final = (
    Column("number", "no.", Kind.COUNT),
    Column("collective", "collective", Kind.TEXT),
    Column("group", "group", Kind.TEXT),
    Column("last_arrival_ns", "last arrival at", Kind.TIME),
    Column("skew_ns", "arrival skew", Kind.TIME),
    Column("transfer_ns", "transfer", Kind.TIME),
    Column("end_spread_ns", "ends apart", Kind.TIME),
    Column("late_rank", "last rank", Kind.TEXT),
)
_MOST_WORST: Final = 10
_ADDED: Final = ("collectives", "late", "duration_ns", "wait_ns", "transfer_ns")


def alignment_report(found: RankAlignment) -> Report:
    """All of this module, as a part of the report on several traces."""
    return Report(
        title="ranks on one clock, observed",
        facts=tuple(rank_facts(found)),
        tables=tuple(rank_tables(found)),
        notes=tuple(rank_notes(found)),
        warnings=tuple(rank_warnings(found)),
    )


def rank_facts(found: RankAlignment) -> Iterator[Fact]:
    """How many ranks are on one clock, how well, and what they wait in all."""
    ranks, collectives = found.ranks, found.collectives
    if collectives.is_empty():
        yield Fact("ranks", "no collective is in all ranks of its group: not aligned")
        return
    told = (
        f"{format_count(ranks.height)} on the clock of rank {ranks['rank'][0]}, by the "
        f"ends of {format_things(collectives.height, 'collective')}; error of the "
        f"alignment up to {format_ns(found.error_ns)}"
    )
    yield Fact("ranks", told)
    sums = ranks.select(pl.col("duration_ns", "wait_ns", "transfer_ns").sum())
    duration_ns, wait_ns, transfer_ns = sums.row(0)
    waits = format_percent(wait_ns / duration_ns if duration_ns else 0.0)
    yield Fact(
        "collectives",
        f"{format_ns(duration_ns)} over all ranks: {format_ns(wait_ns)} ({waits}) wait "
        f"for the last rank, {format_ns(transfer_ns)} transfer",
    )
    latest = ranks.sort("late", "rank", descending=[True, False]).row(0, named=True)
    yield Fact(
        "last to come",
        f"rank {latest['rank']} in {format_count(latest['late'])} of "
        f"{format_count(latest['collectives'])}",
    )


def rank_tables(found: RankAlignment) -> Iterator[Table]:
    """The ranks, their collectives by kind, and those with the largest skew.

    None where nothing could be aligned.
    """
    if found.collectives.is_empty():
        return
    yield _rank_table(found.ranks)
    yield _kind_table(found.collectives)
    yield _worst_table(found.collectives)


def rank_notes(found: RankAlignment) -> Iterator[str]:
    """How to read these tables."""
    if found.collectives.is_empty():
        return
    yield (
        "wait: from the arrival of a rank to that of the last; transfer: from there to "
        "the end; ends apart: what the alignment leaves of their differences, so less "
        "than that is not known of a skew"
    )
    yield "clock: what is added to a rank's times; traces begin when they like"


def rank_warnings(found: RankAlignment) -> Iterator[str]:
    """What of the ranks could not be used."""
    if found.unaligned:
        names = ", ".join(map(str, found.unaligned))
        yield f"ranks that share no collective with the others, not aligned: {names}"
    if found.incomplete:
        yield (
            f"{format_things(found.incomplete, 'collective')} that not all ranks of a "
            "group have are left out"
        )
    early = found.collectives.filter(pl.col("transfer_ns") < 0).height
    if early:
        yield (
            f"{format_things(early, 'collective')} end before the last rank arrives: "
            "the alignment is no better than that"
        )


def _rank_table(ranks: pl.DataFrame) -> Table:
    keys = [column.key for column in _RANKS[1:]]
    rows: list[tuple[Cell, ...]] = [
        (str(rank), *cells) for rank, *cells in ranks.select("rank", *keys).iter_rows()
    ]
    totals = ranks.select(pl.col(_ADDED).sum()).row(0, named=True)
    total = ("total", *(totals.get(key) for key in keys))
    return Table(
        "ranks in collectives, observed", _RANKS, (*rows, total), has_total=True
    )


def _kind_table(collectives: pl.DataFrame) -> Table:
    skew, transfer = pl.col("skew_ns"), pl.col("transfer_ns")
    kinds = (
        collectives.group_by("collective", "group", "ranks")
        .agg(
            skew.sum(),
            transfer.sum(),
            count=pl.len(),
            skew_median_ns=skew.median(),
            transfer_median_ns=transfer.median(),
            end_spread_ns=pl.col("end_spread_ns").median(),
        )
        .sort("skew_ns", "collective", "group", descending=[True, False, False])
    )
    return Table(
        "collectives: sum and median over all, observed",
        _KINDS,
        tuple(_rows(kinds, _KINDS)),
    )


def _worst_table(collectives: pl.DataFrame) -> Table:
    ordered = collectives.sort(
        "skew_ns", "group", "number", descending=[True, False, False]
    )
    worst = ordered.head(_MOST_WORST).with_columns(pl.col("late_rank").cast(pl.String))
    return Table(
        "collectives with the largest arrival skew, observed",
        _WORST,
        tuple(_rows(worst, _WORST)),
    )


def _rows(
    frame: pl.DataFrame, columns: tuple[Column, ...]
) -> Iterator[tuple[Cell, ...]]:
    """The cells of `columns`; a group without a name is a dash."""
    for row in frame.iter_rows(named=True):
        yield tuple(
            None if row[column.key] == "" else row[column.key] for column in columns
        )
