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
    Column("unknown_ns", "unknown", Kind.TIME),
)
_KINDS: Final = (
    Column("collective", "collective", Kind.TEXT),
    Column("group", "group", Kind.TEXT),
    Column("ranks", "ranks", Kind.COUNT),
    Column("count", "times", Kind.COUNT),
    Column("split", "known", Kind.COUNT),
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
_ADDED: Final = (
    *("collectives", "late", "duration_ns"),
    *("wait_ns", "transfer_ns", "unknown_ns"),
)


def alignment_report(found: RankAlignment, job_ranks: int | None = None) -> Report:
    """All of this module, as a part of the report on several traces.

    Args:
        found: of the ranks that were given.
        job_ranks: how many the job has, where that is known.
    """
    given = found.ranks.height + len(found.unaligned)
    absent = max(0, (job_ranks or 0) - given)
    return Report(
        title="ranks on one clock, observed",
        facts=tuple(rank_facts(found, absent)),
        tables=tuple(rank_tables(found)),
        notes=tuple(rank_notes(found)),
        warnings=(*_absence(found, given, absent), *rank_warnings(found)),
    )


def rank_facts(found: RankAlignment, absent: int = 0) -> Iterator[Fact]:
    """How many ranks are on one clock, how well, and what they wait in all.

    Args:
        found: of the ranks that were given.
        absent: how many ranks of the job were not.
    """
    ranks, collectives = found.ranks, found.collectives
    if collectives.is_empty():
        yield Fact(
            "ranks",
            "no collective that synchronises is in all ranks of its group: not aligned",
        )
        return
    told = (
        f"{format_count(ranks.height)} on the clock of rank {ranks['rank'][0]}, by the "
        f"ends of {format_things(collectives.height, 'collective')}; error of the "
        f"alignment up to {format_ns(found.error_ns)}"
    )
    yield Fact("ranks", told)
    yield Fact("collectives", _split_words(ranks, absent))
    latest = ranks.sort("late", "rank", descending=[True, False]).row(0, named=True)
    if latest["split"]:
        yield Fact(
            "last to come",
            f"rank {latest['rank']} in {format_count(latest['late'])} of "
            f"{format_count(latest['split'])}",
        )


def _split_words(ranks: pl.DataFrame, absent: int) -> str:
    """What of the time in collectives is waiting, as far as that is known."""
    sums = ranks.select(pl.sum("split", *_ADDED)).row(0, named=True)
    told = f"{format_ns(sums['duration_ns'])} over all ranks"
    if not sums["split"]:
        return f"{told}; what of it is waiting, and what transfer, is unknown"
    waits = format_percent(_share(sums["wait_ns"], sums["duration_ns"]))
    last = "the last of these ranks" if absent else "the last rank"
    transfer = "transfer or wait for absent ranks" if absent else "transfer"
    told = (
        f"{told}: {format_ns(sums['wait_ns'])} ({waits}) wait for {last}, "
        f"{format_ns(sums['transfer_ns'])} {transfer}"
    )
    unknown_ns = sums["unknown_ns"]
    return f"{told}, {format_ns(unknown_ns)} unknown" if unknown_ns else told


def _share(part_ns: int, whole_ns: int) -> float:
    return part_ns / whole_ns if whole_ns else 0.0


def rank_tables(found: RankAlignment) -> Iterator[Table]:
    """The ranks, their collectives by kind, and those with the largest skew.

    None where nothing could be aligned.
    """
    if found.collectives.is_empty():
        return
    yield _rank_table(found.ranks)
    yield _kind_table(found.collectives)
    if found.collectives["skew_ns"].count():
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


def _absence(found: RankAlignment, given: int, absent: int) -> Iterator[str]:
    if absent:
        is_split = found.ranks["split"].sum() > 0
        yield (
            f"{format_count(given)} of {format_count(given + absent)} ranks given: "
            + (
                "waits for absent ranks are told as transfer"
                if is_split
                else "what these wait for is not all there"
            )
        )


def rank_warnings(found: RankAlignment) -> Iterator[str]:
    """What of the ranks could not be used, and why."""
    if found.sends:
        yield (
            f"{format_count(found.sends)} sends and receives are not used: no trace "
            "tells whether they are of an all-to-all, which synchronises, or not"
        )
    if found.unaligned and not found.collectives.is_empty():
        names = ", ".join(map(str, found.unaligned))
        yield f"ranks that share no collective with the others, not aligned: {names}"
    if found.incomplete:
        yield (
            f"{format_things(found.incomplete, 'collective')} that not all ranks of a "
            "group have are left out"
        )
    reasons = found.collectives["unsplit"].drop_nulls().value_counts().sort("unsplit")
    for reason, count in reasons.iter_rows():
        yield (
            f"{format_things(count, 'collective')}: waiting and transfer are unknown, "
            f"as {reason}"
        )


def _rank_table(ranks: pl.DataFrame) -> Table:
    keys = [column.key for column in _RANKS[1:]]
    totals = ranks.select(pl.sum("split", *_ADDED))
    rows: list[tuple[Cell, ...]] = [
        (str(row.get("rank", "total")), *(row.get(key) for key in keys))
        for part in (ranks, totals)
        for row in _known(part, ranks).iter_rows(named=True)
    ]
    return Table("ranks in collectives, observed", _RANKS, tuple(rows), has_total=True)


def _known(rows: pl.DataFrame, ranks: pl.DataFrame) -> pl.DataFrame:
    """`rows` without what is of no collective; what is unknown nowhere is no column."""
    has_split = pl.col("split") > 0
    is_unknown = bool(ranks["unknown_ns"].sum())
    return rows.with_columns(
        pl.when(has_split).then(pl.col("late", "wait_ns", "transfer_ns")),
        unknown_ns=pl.when(is_unknown).then("unknown_ns"),
    )


def _kind_table(collectives: pl.DataFrame) -> Table:
    skew, transfer = pl.col("skew_ns"), pl.col("transfer_ns")
    kinds = (
        collectives.group_by("collective", "group", "ranks")
        .agg(
            pl.when(skew.count() > 0).then(skew.sum()),
            pl.when(skew.count() > 0).then(transfer.sum()),
            count=pl.len(),
            split=pl.when(collectives["skew_ns"].null_count() > 0).then(skew.count()),
            skew_median_ns=skew.median(),
            transfer_median_ns=transfer.median(),
            end_spread_ns=pl.col("end_spread_ns").median(),
        )
        .sort(
            *("skew_ns", "collective", "group"),
            descending=[True, False, False],
            nulls_last=True,
        )
    )
    return Table(
        "collectives: sum and median over all, observed"
        if collectives["skew_ns"].null_count() == 0
        else "collectives: sum and median over the known ones, observed",
        _KINDS,
        tuple(_rows(kinds, _KINDS)),
    )


def _worst_table(collectives: pl.DataFrame) -> Table:
    ordered = collectives.drop_nulls("skew_ns").sort(
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
