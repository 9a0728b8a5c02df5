"""Reports as a piece of HTML, for notebooks, which bring colours and fonts.

Names come from whoever wrote kernels and arms: all text is escaped, and
control characters are written out.
"""

from collections.abc import Iterable, Iterator
from html import escape
from typing import Final

from layerscope.render.cells import Role
from layerscope.render.grids import Grid, GridCell, grid
from layerscope.render.plain import plain
from layerscope.report import Fact, Report

_FADED: Final = frozenset({Role.INTERVAL, Role.REQUIRED})
_LEFT: Final = "text-align:left;padding:0.1em 0.6em"
_RIGHT: Final = "text-align:right;padding:0.1em 0.6em;font-variant-numeric:tabular-nums"
_TABLE: Final = "border-collapse:collapse;margin:1em 0 0"
_CAPTION: Final = f"{_LEFT};white-space:nowrap;font-weight:bold"


def report_fragment(report: Report) -> str:
    """The report: headlines and tables first, facts and notes folded away."""
    return "\n".join(("<div>", *_report(report), "</div>"))


def _report(report: Report) -> Iterator[str]:
    yield f"<p><strong>{_escaped(report.title)}</strong></p>"
    yield from _list(_told(fact) for fact in report.headlines)
    yield from _list(f"warning: {_escaped(text)}" for text in report.warnings)
    for table in report.tables:
        yield from _table(grid(table))
    yield from _folded("facts", map(_told, report.facts))
    yield from _folded("notes", map(_escaped, report.notes))
    for part in report.parts:
        yield from _report(part)


def _told(fact: Fact) -> str:
    return f"<strong>{_escaped(fact.label)}</strong>: {_escaped(fact.text)}"


def _list(items: Iterable[str]) -> Iterator[str]:
    """A list of what is HTML already; nothing of no items."""
    lines = [f"<li>{item}</li>" for item in items]
    if lines:
        yield f"<ul>{''.join(lines)}</ul>"


def _folded(title: str, items: Iterable[str]) -> Iterator[str]:
    for listed in _list(items):
        yield f"<details><summary>{_escaped(title)}</summary>{listed}</details>"


def _table(shown: Grid) -> Iterator[str]:
    yield f'<table style="{_TABLE}">'
    yield f'<caption style="{_CAPTION}">{_escaped(shown.title)}</caption>'
    heads = (
        f'<th colspan="{head.span}" style="{_side(is_text=head.is_text)}">'
        f"{_escaped(head.title)}</th>"
        for head in shown.heads
    )
    yield f"<thead><tr>{''.join(heads)}</tr></thead><tbody>"
    for number, row in enumerate(shown.rows, start=1):
        is_total = shown.has_total and number == len(shown.rows)
        yield f"<tr>{''.join(_cell(cell, is_total=is_total) for cell in row)}</tr>"
    yield "</tbody></table>"


def _cell(cell: GridCell, *, is_total: bool) -> str:
    style = _side(is_text=cell.is_text)
    if cell.role in _FADED:
        style += ";opacity:0.7"
    if is_total or cell.role is Role.VERDICT:
        style += ";font-weight:bold"
    return f'<td style="{style}">{_escaped(cell.text)}</td>'


def _side(*, is_text: bool) -> str:
    return _LEFT if is_text else _RIGHT


def _escaped(text: str) -> str:
    return escape(plain(text))
