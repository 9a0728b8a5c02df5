"""What readers are told of a slice: arguments by name, from the columns of a frame."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import polars as pl

from layerscope.render.perfetto.names import Names
from layerscope.render.perfetto.packets import Numbers

Arguments: TypeAlias = Mapping[str, "str | Arguments"]
"""The column of each argument, or more arguments, by name."""

FLOWS: Final = "flows"
"""Column of the flows that a slice is part of, List(Int64); empty where of none."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number that differs between slices that are alike otherwise."""

    column: str


Told: TypeAlias = list[tuple[int, "str | Number | list[Number] | Told"]]
"""Arguments of slices that are alike, by the numbers of their names."""


def columns_of(arguments: Arguments) -> Iterator[str]:
    """The columns that arguments name, those within others too."""
    for value in arguments.values():
        if isinstance(value, str):
            yield value
        else:
            yield from columns_of(value)


def alike(frame: pl.DataFrame, columns: list[str]) -> Iterator[pl.DataFrame]:
    """The rows of `frame` in groups that differ in numbers only, in their order.

    Rows are alike where they have the same texts, lists of the same lengths, and lack
    the same values.

    Args:
        frame: any frame of at least one row.
        columns: those that count; Int64, String or List(Int64).
    """
    shape = [_shape(frame[name]) for name in columns if _varies(frame[name])]
    if not shape:
        yield frame
        return
    for _, rows in frame.group_by(shape, maintain_order=True):
        yield rows


def told(arguments: Arguments, row: Mapping[str, Any], names: Names) -> Told:
    """The arguments that slices like `row` have."""
    found: Told = []
    for name, value in arguments.items():
        if not isinstance(value, str):
            inner = told(value, row, names)
            if inner:
                found.append((names.argument(name), inner))
        elif isinstance(row[value], str):
            found.append((names.argument(name), row[value]))
        elif isinstance(row[value], list):
            if row[value]:
                found.append((names.argument(name), elements(value, row)))
        elif row[value] is not None:
            found.append((names.argument(name), Number(value)))
    return found


def elements(column: str, row: Mapping[str, Any]) -> list[Number]:
    """The numbers of a list, as `numbers_of` calls them."""
    return [Number(f"{column}[{index}]") for index in range(len(row[column]))]


def numbers_of(rows: pl.DataFrame) -> dict[str, pl.Series]:
    """Every number of rows that are alike: each Int64 column, each element of lists."""
    found: dict[str, pl.Series] = {}
    for column in rows.iter_columns():
        if column.dtype == pl.Int64 and not column.null_count():
            found[column.name] = column
        elif column.dtype == pl.List:
            for index in range(column.list.len()[0]):
                found[f"{column.name}[{index}]"] = column.list.get(index)
    return found


def annotate(annotations: Any, arguments: Told, numbers: Numbers) -> None:  # noqa: ANN401
    """Add `arguments` with these numbers to a repeated field of DebugAnnotation."""
    for name, value in arguments:
        match value:
            case str():
                annotations.add(name_iid=name, string_value=value)
            case Number():
                annotations.add(name_iid=name, int_value=numbers[value.column])
            case list():
                added = annotations.add(name_iid=name)
                for item in value:
                    if isinstance(item, Number):
                        added.array_values.add(int_value=numbers[item.column])
                    else:
                        annotate(added.dict_entries, [item], numbers)


def _varies(column: pl.Series) -> bool:
    """Whether not all rows are alike in it."""
    if column.dtype == pl.List:
        lengths = column.list.len()
        return lengths.min() != lengths.max()
    if column.dtype == pl.String and not column.null_count():
        return bool((column != column[0]).any())
    return 0 < column.null_count() < column.len()


def _shape(column: pl.Series) -> pl.Series:
    """What rows that are alike have in common of it."""
    if column.dtype == pl.String:
        return column
    return column.list.len() if column.dtype == pl.List else column.is_null()
