import polars as pl

from layerscope.render.cells import table_scale, table_title
from layerscope.report import Column, Kind, Table
from layerscope.report.table_sets import counting_copies, in_one_unit

COLUMNS = (
    Column("name", "kernels", Kind.TEXT),
    Column("kernels", "kernels", Kind.COUNT),
    Column("base_kernels", "kernels before", Kind.COUNT),
    Column("time_ns", "time", Kind.TIME),
)


def table(*times_ns: int) -> Table:
    """A row for each time."""
    return Table("layers", COLUMNS, tuple(("x", 1, 2, each) for each in times_ns))


def test_counts_of_kernels_and_copies() -> None:
    """They are called so where there are copies or fills, and kernels where not."""
    alone = pl.Series(["kernel", "kernel"])
    assert list(counting_copies([table(1)], alone, alone)) == [table(1)]
    (found,) = counting_copies([table(1)], alone, pl.Series(["kernel", "fill"]))
    assert [column.title for column in found.columns] == [
        *("kernels", "kernels + copies", "kernels + copies before", "time"),
    ]
    assert found.rows == table(1).rows


def test_one_unit() -> None:
    """That of the table with the smallest times; one without any time has no say."""
    found = list(in_one_unit([table(5, 2_000_000), table(3_000), table(0)]))
    assert [table_title(each) for each in found] == ["layers, in µs"] * 3
    assert table_scale(found[0]).format(2_000_000) == "2,000.00"
    (alone,) = in_one_unit([table(5, 2_000_000)])
    assert table_title(alone) == "layers, in ms"
    assert list(in_one_unit([])) == []
