"""A report in a terminal, or in a file that looks like one without colours.

Meaning never hangs on colour: verdicts are words, and their colours are blue and
yellow, which all eyes tell apart.
"""

from textwrap import wrap
from typing import Final

from rich import box
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from layerscope.render.cells import (
    Part,
    Role,
    cell_parts,
    is_text,
    shown_columns,
    table_scale,
    table_title,
)
from layerscope.render.plain import plain
from layerscope.report import Fact, Report, Table
from layerscope.units import TimeScale

_ENDLESS: Final = 10_000
_NARROW: Final = 9  # characters a line of a column's title where parts are stacked
_STYLES: Final = {"faster": "bold blue", "slower": "bold yellow"}


def print_report(report: Report, console: Console | None = None) -> None:
    """Write `report` to `console`, standard output by default, in one go.

    Text of the run (names of arms, regions, reasons) is never read as markup, and no
    terminal obeys it: see `plain`. Only a terminal gets the blanks at ends of lines.

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
    console.print(_shown(report.title, "bold"))
    _print_header(report, console)
    for table in report.tables:
        scale = table_scale(table)
        console.print()
        console.print(_shown(table_title(table), "bold"))
        wide = _grid(table, scale, is_wide=True)
        needed = console.measure(wide, options=console.options.update(width=_ENDLESS))
        has_room = needed.maximum <= console.width
        console.print(wide if has_room else _grid(table, scale, is_wide=False))
    if report.notes:
        console.print()
    for note in report.notes:
        console.print(_shown(f"note: {note}", "dim"))
    for warning in report.warnings:
        console.print(_shown(f"warning: {warning}", "yellow"))
    for part in report.parts:
        console.print()
        _print_report(part, console)


def _print_header(report: Report, console: Console) -> None:
    for fact in report.headlines:
        console.print(
            Text.assemble(_shown(f"{fact.label}: ", "bold"), _shown(fact.text))
        )
    if report.headlines and report.facts:
        console.print()
    if report.facts:
        console.print(_facts(report.facts))


def _facts(facts: tuple[Fact, ...]) -> Grid:
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for fact in facts:
        grid.add_row(_shown(fact.label, "dim"), _shown(fact.text))
    return grid


def _grid(table: Table, scale: TimeScale, *, is_wide: bool) -> Grid:
    """The table with the parts of a cell beside each other, or stacked."""
    grid = Grid(
        box=box.SIMPLE_HEAD,
        show_edge=False,
        pad_edge=False,
        padding=(0, 0, 0, 1 if is_wide else 0),
    )
    shown = shown_columns(table)
    for index in shown:
        column = table.columns[index]
        title = plain(column.title)
        if not is_wide:
            title = "\n".join(wrap(title, _NARROW, break_long_words=False))
        if is_text(column):
            grid.add_column(Text(title), overflow="fold")
        else:
            grid.add_column(Text(title), justify="right", no_wrap=True)
    for number, row in enumerate(table.rows, start=1):
        is_total = table.has_total and number == len(table.rows)
        parts = (cell_parts(table.columns[i], row[i], scale) for i in shown)
        between = Text("  " if is_wide else "\n")
        cells = [between.join(map(_text, cell)) for cell in parts]
        grid.add_row(*cells, style="bold" if is_total else "")
    return grid


def _text(part: Part) -> Text:
    if part.role is Role.INTERVAL:
        return _shown(part.text, "dim")
    if part.role is Role.VERDICT:
        return _shown(part.text, _STYLES.get(part.text, ""))
    return _shown(part.text)


def _shown(text: str, style: str = "") -> Text:
    return Text(plain(text), style=style)
