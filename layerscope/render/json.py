"""A report as JSON with stable names, for programs."""

from typing import Any

import msgspec

from layerscope.report import Report, Table
from layerscope.run import Run


def render(report: Report, run: Run | None = None) -> str:
    """The report, and the header of the run that it is of, as one JSON object.

    Cells are raw: times in ns, sizes in bytes; what was not measured, and an unknown
    end of an interval, is null. A row is an object with the columns' keys.
    """
    document = _bare(report) if run is None else _document(report, run)
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _document(report: Report, run: Run) -> dict[str, Any]:
    drafts = [run.draft] if run.draft is not None else []
    named = {"title": report.title, "path": str(run.path)}
    parts = [
        _document(part, draft) for part, draft in zip(report.parts, drafts, strict=True)
    ]
    return named | _content(report) | {"run": run.header, "parts": parts}


def _bare(report: Report) -> dict[str, Any]:
    """A report that is not of one run, such as of two."""
    return _content(report) | {"parts": [_bare(part) for part in report.parts]}


def _content(report: Report) -> dict[str, Any]:
    return {
        "title": report.title,
        "headlines": {fact.label: fact.text for fact in report.headlines},
        "differences": report.differences,
        "facts": {fact.label: fact.text for fact in report.facts},
        "tables": [_table(table) for table in report.tables],
        "notes": report.notes,
        "warnings": report.warnings,
    }


def _table(table: Table) -> dict[str, Any]:
    keys = [column.key for column in table.columns]
    return {
        "title": table.title,
        "columns": [
            {
                "key": column.key,
                "title": column.title,
                "kind": column.kind,
                "unit": column.kind.unit,
            }
            for column in table.columns
        ],
        "rows": [dict(zip(keys, row, strict=True)) for row in table.rows],
        "has_total": table.has_total,
    }
