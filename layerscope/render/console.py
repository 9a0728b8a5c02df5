"""A report in a terminal, or in a file that looks like one without colours.

Meaning never hangs on colour: verdicts are words, and their colours are blue and
yellow, which all eyes tell apart.
"""

from collections.abc import Callable
from textwrap import wrap
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from layerscope.regions import Region
from layerscope.report import Cell, Column, Fact, Interval, Kind, Report, Table, Traffic
from layerscope.units import (
    NOTHING,
    TimeScale,
    format_bytes,
    format_number,
    format_percent,
    time_scale,
)

_ENDLESS: Final = 10_000
_NARROW: Final = 9  # characters a line of a column's title where parts are stacked
_STYLES: Final = {"faster": "bold blue", "slower": "bold yellow"}
_REGION_NAMES: Final[dict[str, str]] = {
    Region.O_PROJ_ALL_REDUCE: "o-proj + all-reduce",
    Region.MOE: "MoE",
    Region.MLP: "MLP",
    Region.MHC: "mHC",
}
_FORMATS: Final[dict[Kind, Callable[[TimeScale, float], str]]] = {
    Kind.TIME: lambda scale, cell: scale.format(cell),
    Kind.CHANGE: lambda scale, cell: scale.format(cell, signed=True),
    Kind.SIZE: lambda _, cell: format_bytes(cell),
    Kind.RATIO: lambda _, cell: format_number(cell, 2),
}


def print_report(report: Report, console: Console | None = None) -> None:
    """Write `report` to `console`, standard output by default, in one go.

    Text of the run (names of arms, regions, reasons) is never read as markup. Only a
    terminal gets the blanks at the ends of lines.

    Raises:
        OSError: it could not be written.
    """
    console = console or Console()
    with console.capture() as captured:
        _print_report(report, console)
    text = captured.get()
    if not console.is_terminal:
        text = "\n".join(line.rstrip() for line in text.split("\n"))
    console.file.write(text)
    console.file.flush()


def _print_report(report: Report, console: Console) -> None:
    console.print(Text(report.title, style="bold"))
    _print_header(report, console)
    for table in report.tables:
        scale = time_scale(_times(table))
        console.print()
        unit = f", in {scale.unit}" if _times(table) else ""
        console.print(Text(f"{table.title}{unit}", style="bold"))
        wide = _grid(table, scale, is_wide=True)
        needed = console.measure(wide, options=console.options.update(width=_ENDLESS))
        has_room = needed.maximum <= console.width
        console.print(wide if has_room else _grid(table, scale, is_wide=False))
    if report.notes:
        console.print()
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"))
    for warning in report.warnings:
        console.print(Text(f"warning: {warning}", style="yellow"))
    for part in report.parts:
        console.print()
        _print_report(part, console)


def _print_header(report: Report, console: Console) -> None:
    for fact in report.headlines:
        console.print(Text.assemble((f"{fact.label}: ", "bold"), fact.text))
    if report.headlines and report.facts:
        console.print()
    if report.facts:
        console.print(_facts(report.facts))


def _facts(facts: tuple[Fact, ...]) -> Grid:
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for fact in facts:
        grid.add_row(Text(fact.label, style="dim"), Text(fact.text))
    return grid


def _times(table: Table) -> list[float]:
    """Every time in the table, in ns."""
    times: list[float] = []
    for row in table.rows:
        for column, cell in zip(table.columns, row, strict=True):
            if isinstance(cell, Interval):
                times += (cell.value, cell.low, cell.high)
            elif column.kind in (Kind.TIME, Kind.CHANGE) and isinstance(
                cell, int | float
            ):
                times.append(cell)
    return times


def _grid(table: Table, scale: TimeScale, *, is_wide: bool) -> Grid:
    """The table with the parts of a cell beside each other, or stacked."""
    grid = Grid(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 1 if is_wide else 0),
    )
    shown = [i for i in range(len(table.columns)) if _has_content(table, i)]
    for index in shown:
        column = table.columns[index]
        title = (
            column.title
            if is_wide
            else "\n".join(wrap(column.title, _NARROW, break_long_words=False))
        )
        if column.kind in (Kind.TEXT, Kind.REGION):
            grid.add_column(Text(title), overflow="fold")
        else:
            grid.add_column(Text(title), justify="right", no_wrap=True)
    for number, row in enumerate(table.rows, start=1):
        is_total = table.has_total and number == len(table.rows)
        parts = (_parts(table.columns[i], row[i], scale) for i in shown)
        cells = [Text("  " if is_wide else "\n").join(part) for part in parts]
        grid.add_row(*cells, style="bold" if is_total else "")
    return grid


def _has_content(table: Table, index: int) -> bool:
    return any(row[index] is not None for row in table.rows)


def _parts(column: Column, cell: Cell, scale: TimeScale) -> list[Text]:
    """What a cell says, in pieces that stand above or beside each other."""
    if isinstance(cell, Interval):
        return _interval(cell, scale)
    if isinstance(cell, Traffic):
        return _traffic(cell)
    return [Text(_plain(column, cell, scale))]


def _plain(column: Column, cell: str | float | None, scale: TimeScale) -> str:
    if cell is None:
        return NOTHING
    if isinstance(cell, str):
        return _REGION_NAMES.get(cell, cell) if column.kind is Kind.REGION else cell
    if column.kind in _FORMATS:
        return _FORMATS[column.kind](scale, cell)
    return format_number(cell, 0 if cell == int(cell) else 1)


def _interval(cell: Interval, scale: TimeScale) -> list[Text]:
    is_change = cell.relative is not None
    value, low, high = (
        scale.format(item, signed=is_change)
        for item in (cell.value, cell.low, cell.high)
    )
    parts = [Text(value)]
    if cell.relative is not None:
        parts.append(Text(format_percent(cell.relative, signed=True)))
    parts.append(Text(f"{low}…{high}", style="dim"))
    if cell.verdict:
        parts.append(Text(cell.verdict, style=_STYLES.get(cell.verdict, "")))
    return parts


def _traffic(cell: Traffic) -> list[Text]:
    touched = NOTHING if cell.touched is None else format_bytes(cell.touched)
    parts = [Text(touched), Text(f"/ {format_bytes(cell.required)}")]
    if cell.ratio is not None:
        parts.append(Text(f"= {format_number(cell.ratio, 2)}"))
    return parts
