"""What tables of one report have in common: their unit, and what counts count."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

import polars as pl

from layerscope.report.document import Kind, Table

_KERNELS: Final = "kernels"


def counting_copies(tables: Iterable[Table], *kinds: pl.Series) -> Iterator[Table]:
    """Say of counts of kernels that copies and fills are in them, where there are any.

    Args:
        tables: those whose columns of counts count whatever ran.
        kinds: of all that is counted: ``kernel``, ``copy`` or ``fill``.
    """
    if not any((each != "kernel").any() for each in kinds):
        yield from tables
        return
    for table in tables:
        columns = (
            replace(each, title=each.title.replace(_KERNELS, "kernels + copies"))
            if each.kind is Kind.COUNT
            else each
            for each in table.columns
        )
        yield replace(table, columns=tuple(columns))


def in_one_unit(tables: Iterable[Table]) -> Iterator[Table]:
    """The tables with times in the unit of that whose largest time is the smallest.

    Args:
        tables: with plain times only.
    """
    listed = list(tables)
    largest = [time for each in listed if (time := _largest_ns(each))]
    scale_ns = min(largest, default=None)
    yield from (replace(each, scale_ns=scale_ns) for each in listed)


def _largest_ns(table: Table) -> float:
    return max(
        (
            abs(cell)
            for row in table.rows
            for column, cell in zip(table.columns, row, strict=True)
            if column.kind is Kind.TIME and isinstance(cell, int | float)
        ),
        default=0,
    )
