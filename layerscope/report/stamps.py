"""Waiting and work of kernels, by what their blocks noted."""

from collections.abc import Iterable, Iterator
from typing import Final

import polars as pl

from layerscope.analyze.stamps import StampedPass
from layerscope.report.document import Cell, Column, Kind, Table
from layerscope.units import format_estimate, format_ns, format_things

_COLUMNS: Final = (
    Column("role", "role", Kind.TEXT),
    Column("blocks", "blocks", Kind.COUNT),
    Column("empty_blocks", "left at once", Kind.COUNT),
    Column("early_ns", "begins before", Kind.CHANGE),
    Column("handover_ns", "hand-over", Kind.TIME),
    Column("work_ns", "work", Kind.TIME),
    Column("block_waits_ns", "a block waits", Kind.TIME),
    Column("block_works_ns", "a block works", Kind.TIME),
    Column("triggers_ns", "triggers before its end", Kind.CHANGE),
)
_SUMS: Final = ("handover_ns", "work_ns")
_HOW: Final = (
    "blocks, by stamps that the first thread of each takes: begins before: from its "
    "first block's begin to the end of all kernels before it; hand-over: from that end "
    "to the first block whose wait was over; work: what it goes on beyond both; they "
    "add up to the pass, without the first kernel's hand-over; a block waits: the "
    "median one, early work included; triggers before its end: from its last block's "
    "trigger"
)


def stamp_tables(found: Iterable[StampedPass]) -> Iterator[Table]:
    """A table an arm: its kernels in order, and what they add up to."""
    for one in found:
        rows = one.kernels.select(pl.col(_SUMS).sum()).row(0)
        sums: dict[str, Cell] = dict(zip(_SUMS, rows, strict=True))
        readings = format_things(one.readings, "reading")
        yield Table(
            title=f"kernels of {one.arm} by their blocks, mean of {readings}",
            columns=_COLUMNS,
            rows=(
                *one.kernels.select([column.key for column in _COLUMNS]).rows(),
                ("all", *(sums.get(column.key) for column in _COLUMNS[1:])),
            ),
        )


def stamp_notes(found: Iterable[StampedPass]) -> Iterator[str]:
    """How the tables are to be read, and what stamps cost."""
    for number, one in enumerate(found):
        if number == 0:
            yield _HOW
        yield f"{one.arm}: {_cost(one)}; their clock {_moves(one)}"


def _cost(one: StampedPass) -> str:
    if one.cost is None:
        return "what stamps cost was not measured"
    found = one.cost.difference
    change = format_estimate(found.value, found.low, found.high, one.cost.relative)
    return f"a build with stamps changes a pass by {change}, {one.cost.verdict}"


def _moves(one: StampedPass) -> str:
    return (
        f"moves by {format_ns(one.tick_ns)} or more" if one.tick_ns else "does not move"
    )
