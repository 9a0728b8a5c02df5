"""Tables for a page: every part of a cell is a cell of its own, so that all align."""

from dataclasses import dataclass
from typing import Final

from layerscope.render.cells import (
    Part,
    Role,
    cell_parts,
    is_text,
    shown_columns,
    table_scale,
    table_title,
)
from layerscope.report import Cell, Column, Kind, Table
from layerscope.units import TimeScale

_ORDER: Final = tuple(Role)


@dataclass(frozen=True, slots=True)
class Head:
    """The title of a column, over as many cells as it has parts."""

    title: str
    span: int
    is_text: bool


@dataclass(frozen=True, slots=True)
class GridCell:
    """A cell of one part; empty where the row lacks what others have."""

    text: str
    role: Role
    is_text: bool
    region: str = ""
    """The region that the cell names, whose colour stands beside it."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table as a page shows it; the first cell of a row names the row."""

    title: str
    heads: tuple[Head, ...]
    rows: tuple[tuple[GridCell, ...], ...]
    has_total: bool


def grid(table: Table) -> Grid:
    """`table` without columns that say nothing."""
    scale = table_scale(table)
    columns = [
        _column(table.columns[index], [row[index] for row in table.rows], scale)
        for index in shown_columns(table)
    ]
    return Grid(
        title=table_title(table),
        heads=tuple(head for head, _ in columns),
        rows=tuple(
            tuple(cell for _, cells in columns for cell in cells[number])
            for number in range(len(table.rows))
        ),
        has_total=table.has_total,
    )


def _column(
    column: Column, cells: list[Cell], scale: TimeScale
) -> tuple[Head, list[tuple[GridCell, ...]]]:
    """The head of a column, and the cells of each of its rows."""
    parts = [cell_parts(column, cell, scale) for cell in cells]
    used = {part.role for row in parts for part in row}
    roles = [role for role in _ORDER if role in used]
    head = Head(column.title, len(roles), is_text(column))
    return head, [
        tuple(_cell(column, cell, role, row) for role in roles)
        for cell, row in zip(cells, parts, strict=True)
    ]


def _cell(column: Column, cell: Cell, role: Role, parts: list[Part]) -> GridCell:
    text = next((part.text for part in parts if part.role is role), "")
    region = cell if column.kind is Kind.REGION and isinstance(cell, str) else ""
    return GridCell(text, role, is_text(column) or role is Role.VERDICT, region)
