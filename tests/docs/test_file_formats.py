"""The page of file formats names every file, column and field, and nothing else."""

import re
from pathlib import Path
from typing import Any

import msgspec
import polars as pl
import pytest

from layerscope.run import FILES, STAMPS_FILE
from layerscope.run_header import FORMAT_VERSION, RunHeader
from layerscope.schema import EDGES, KERNELS, NULLABLE, SAMPLES, STAMPS, Schema

PAGE = Path(__file__).resolve().parents[2] / "docs" / "file-formats.md"
SCHEMAS = {"samples": SAMPLES, "kernels": KERNELS, "edges": EDGES, "stamps": STAMPS}
TYPES = {pl.Int64(): "Int64", pl.String(): "String", pl.Boolean(): "Boolean"}


def tables() -> dict[str, list[list[str]]]:
    """The rows of the one table below each heading, cell by cell."""
    parts = re.split(r"^#+ (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    rows = {}
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        lines = [line for line in body.splitlines() if line.startswith("|")]
        cells = [
            [cell.strip().strip("`") for cell in line.strip("|").split("|")]
            for line in lines[2:]  # after the head and what is below it
        ]
        rows[heading.strip("`")] = cells
    return rows


def structs(found: msgspec.inspect.Type) -> dict[str, type[msgspec.Struct]]:
    """Every struct within a type, by its name."""
    if isinstance(found, msgspec.inspect.StructType):
        inner: list[msgspec.inspect.Type] = [field.type for field in found.fields]
        named = {found.cls.__name__: found.cls}
    else:
        whole: dict[str, Any] = msgspec.structs.asdict(found)
        parts = [whole.get(name) for name in ("item_type", "key_type", "value_type")]
        parts += [*whole.get("types", ()), *whole.get("item_types", ())]
        inner = [each for each in parts if isinstance(each, msgspec.inspect.Type)]
        named = {}
    for each in inner:
        named |= structs(each)
    return named


@pytest.mark.parametrize(("file", "schema"), SCHEMAS.items())
def test_every_column_is_told_with_its_type(file: str, schema: Schema) -> None:
    """The table of a file has the columns of its schema, in order, and what may lack.

    Each says what it is.
    """
    rows = tables()[f"{file}.parquet"]
    assert [(name, dtype) for name, dtype, _ in rows] == [
        (name, f"{TYPES[dtype]}{' or null' if name in NULLABLE else ''}")
        for name, dtype in schema.items()
    ]
    assert all(told for _, _, told in rows)


def test_every_field_of_the_header_is_told() -> None:
    """The header and each struct in it have a table of all fields, in order."""
    found = structs(msgspec.inspect.type_info(RunHeader))
    told = tables()
    assert {name: [field for field, _ in told.get(name, [])] for name in found} == {
        name: [field.encode_name for field in msgspec.structs.fields(struct)]
        for name, struct in found.items()
    }
    assert all(meaning for name in found for _, meaning in told[name])


def test_nothing_is_told_that_is_not_there() -> None:
    """No table is of a struct that a header no longer has."""
    known = set(structs(msgspec.inspect.type_info(RunHeader)))
    known |= {"File formats", "Versions", "run.json"}
    known |= {f"{name}.parquet" for name in SCHEMAS}
    assert set(tables()) == known


def test_every_version_of_the_format_is_told() -> None:
    """There is a row for each version up to the present one."""
    versions = [int(version) for version, _ in tables()["Versions"]]
    assert versions == list(range(1, FORMAT_VERSION + 1))


def test_every_file_is_told() -> None:
    """The files of a run are listed, and its draft."""
    files = [name for name, _ in tables()["File formats"]]
    assert sorted(files) == sorted([*FILES, STAMPS_FILE, "draft/"])
