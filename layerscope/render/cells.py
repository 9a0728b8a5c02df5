"""The cells of tables as text, the same in a terminal and on a page."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from layerscope.report import Cell, Column, Interval, Kind, Table, Traffic
from layerscope.report.region_names import region_name
from layerscope.units import (
    NOTHING,
    TimeScale,
    format_bytes,
    format_number,
    format_percent,
    time_scale,
)

_FORMATS: Final[dict[Kind, Callable[[TimeScale, float], str]]] = {
    Kind.TIME: lambda scale, cell: scale.format(cell),
    Kind.CHANGE: lambda scale, cell: scale.format(cell, signed=True),
    Kind.SIZE: lambda _, cell: format_bytes(cell),
    Kind.RATIO: lambda _, cell: format_number(cell, 2),
}


class Role(StrEnum):
    """What a part of a cell is to the cell."""

    VALUE = "value"
    RELATIVE = "relative"
    INTERVAL = "interval"
    VERDICT = "verdict"
    REQUIRED = "required"
    RATIO = "ratio"


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of a cell, which stands above or beside the others."""

    text: str
    role: Role


def table_scale(table: Table) -> TimeScale:
    """The unit that all times of `table` are told in."""
    return time_scale(_times(table) if table.scale_ns is None else [table.scale_ns])


def table_title(table: Table) -> str:
    """Its title, and the unit of its times where it has some."""
    has_times = any(True for _ in _times(table))
    return f"{table.title}, in {table_scale(table).unit}" if has_times else table.title


def shown_columns(table: Table) -> list[int]:
    """Which columns have any content, from 0."""
    return [
        index
        for index in range(len(table.columns))
        if any(row[index] is not None for row in table.rows)
    ]


def is_text(column: Column) -> bool:
    """Whether cells of `column` are words, which stand to the left."""
    return column.kind in (Kind.TEXT, Kind.REGION)


def cell_parts(column: Column, cell: Cell, scale: TimeScale) -> list[Part]:
    """What a cell says; at least one part."""
    if isinstance(cell, Interval):
        return list(_interval(cell, scale))
    if isinstance(cell, Traffic):
        return list(_traffic(cell))
    return [Part(_plain(column, cell, scale), Role.VALUE)]


def _times(table: Table) -> Iterator[float]:
    """Every time in the table, in ns."""
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            if isinstance(cell, Interval):
                yield from (cell.value, cell.low, cell.high)
            elif column.kind in (Kind.TIME, Kind.CHANGE) and isinstance(
                cell, int | float
            ):
                yield cell


def _plain(column: Column, cell: str | float | None, scale: TimeScale) -> str:
    if cell is None:
        return NOTHING
    if isinstance(cell, str):
        return region_name(cell) if column.kind is Kind.REGION else cell
    if column.kind in _FORMATS:
        return _FORMATS[column.kind](scale, cell)
    return format_number(cell, 0 if cell == int(cell) else 1)


def _interval(cell: Interval, scale: TimeScale) -> Iterator[Part]:
    is_change = cell.relative is not None
    value, low, high = (
        scale.format(item, signed=is_change)
        for item in (cell.value, cell.low, cell.high)
    )
    yield Part(value, Role.VALUE)
    if cell.relative is not None:
        yield Part(format_percent(cell.relative, signed=True), Role.RELATIVE)
    yield Part(f"{low}…{high}", Role.INTERVAL)
    if cell.verdict:
        yield Part(cell.verdict, Role.VERDICT)


def _traffic(cell: Traffic) -> Iterator[Part]:
    touched = NOTHING if cell.touched is None else format_bytes(cell.touched)
    yield Part(touched, Role.VALUE)
    yield Part(f"/ {format_bytes(cell.required)}", Role.REQUIRED)
    if cell.ratio is not None:
        yield Part(f"= {format_number(cell.ratio, 2)}", Role.RATIO)
