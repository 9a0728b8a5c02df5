from layerscope.render.cells import Role
from layerscope.render.grids import Grid, GridCell, Head, grid
from layerscope.report import Column, Interval, Kind, Table, Traffic


def test_every_part_of_a_cell_has_a_column() -> None:
    """Parts that one row has and another lacks stay in their places."""
    table = Table(
        title="one pass",
        columns=(
            Column("region", "region", Kind.REGION),
            Column("change_ns", "change", Kind.INTERVAL),
        ),
        rows=(
            ("moe", Interval(-2_000, -2_100, -1_900, -0.05, verdict="faster")),
            ("total", None),
        ),
        has_total=True,
    )
    assert grid(table) == Grid(
        title="one pass, in µs",
        heads=(Head("region", 1, is_text=True), Head("change", 4, is_text=False)),
        rows=(
            (
                GridCell("MoE", Role.VALUE, is_text=True, region="moe"),
                GridCell("−2.00", Role.VALUE, is_text=False),
                GridCell("−5.00 %", Role.RELATIVE, is_text=False),
                GridCell("−2.10…−1.90", Role.INTERVAL, is_text=False),
                GridCell("faster", Role.VERDICT, is_text=True),
            ),
            (
                GridCell("total", Role.VALUE, is_text=True, region="total"),
                GridCell("–", Role.VALUE, is_text=False),
                GridCell("", Role.RELATIVE, is_text=False),
                GridCell("", Role.INTERVAL, is_text=False),
                GridCell("", Role.VERDICT, is_text=True),
            ),
        ),
        has_total=True,
    )


def test_columns_without_content_are_left_out() -> None:
    """A column of dashes says nothing; a table without times has no unit."""
    table = Table(
        title="bytes",
        columns=(
            Column("arm", "arm", Kind.TEXT),
            Column("kernels", "kernels", Kind.COUNT),
            Column("traffic_bytes", "touched / required", Kind.TRAFFIC),
        ),
        rows=(("fused", None, Traffic(None, 1_000, None)),),
    )
    found = grid(table)
    assert found.title == "bytes"
    assert [(head.title, head.span) for head in found.heads] == [
        ("arm", 1),
        ("touched / required", 2),
    ]
    assert [cell.text for cell in found.rows[0]] == ["fused", "–", "/ 1.000 kB"]
