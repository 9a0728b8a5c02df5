"""The only SQL that files of other tools are asked with: plain columns of one table."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

LONGEST_TEXT: Final = 1 << 16
"""Characters of a text that are kept; no name of a kernel is so long."""


def select(
    table: str,
    columns: Collection[str],
    numbers: Sequence[str],
    texts: Sequence[str],
    only: Mapping[str, Sequence[int]],
) -> str:
    """A query for some columns of a table, or an empty string if it has none of them.

    Values of another type than asked for are null, as is a column that is not there.

    Args:
        table: its name.
        columns: those that it has.
        numbers: columns wanted as whole numbers; fractions are cut off.
        texts: columns wanted as text, of at most `LONGEST_TEXT` characters.
        only: column -> values that rows must have in it, where there is the column.
    """
    if not {*numbers, *texts} & {*columns}:
        return ""
    chosen = [_number(name) if name in columns else "NULL" for name in numbers]
    chosen += [_text(name) if name in columns else "NULL" for name in texts]
    conditions = [
        f"{quoted(name)} IN ({', '.join(map(str, values))})"
        for name, values in only.items()
        if name in columns
    ]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    # An index may be damaged, and would give another order than that of the rows.
    source = f"{quoted(table)} NOT INDEXED{where}"
    return f"SELECT {', '.join(chosen)} FROM {source}"  # noqa: S608 (quoted)


def quoted(name: str) -> str:
    """A name from a file as SQL takes it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def _number(name: str) -> str:
    # Programs that save a table again make floats of whole numbers beside nulls.
    column = quoted(name)
    return (
        f"CASE typeof({column}) WHEN 'integer' THEN {column} "
        f"WHEN 'real' THEN CAST({column} AS INTEGER) END"
    )


def _text(name: str) -> str:
    column = quoted(name)
    is_text = f"typeof({column}) = 'text'"
    return f"CASE WHEN {is_text} THEN substr({column}, 1, {LONGEST_TEXT}) END"
