"""Reading charts back: what their layers draw, from which rows."""

from typing import Any

import altair as alt

Rows = list[dict[str, Any]]


def drawn(chart: alt.LayerChart | None) -> dict[str, Any]:
    """The specification of a chart that is there."""
    assert chart is not None
    spec: dict[str, Any] = chart.to_dict()
    return spec


def rows_of(spec: dict[str, Any], layer: int | None = None) -> Rows:
    """The data of a layer, or what all layers share."""
    where = spec if layer is None else spec["layer"][layer]
    rows: Rows = spec["datasets"][where["data"]["name"]]
    return rows


def only(rows: Rows, *fields: str) -> list[tuple[Any, ...]]:
    """These fields of every row."""
    return [tuple(row[field] for field in fields) for row in rows]


def mark_of(spec: dict[str, Any], layer: int) -> dict[str, Any]:
    """How a layer draws."""
    mark: dict[str, Any] = spec["layer"][layer]["mark"]
    return mark
