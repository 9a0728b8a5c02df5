import polars as pl
from polars.testing import assert_frame_equal

from layerscope.analyze.variant_differences import (
    Difference,
    alike_variants,
    kernels_by_variant,
)
from tests.analyze.placed_kernels import Row, kernel, placed


def layers(*variants: tuple[str, str]) -> pl.DataFrame:
    """A step of layers (variant, kernels): letters, capitals on another stream."""
    rows: list[Row] = []
    for layer, (variant, kernels) in enumerate(variants):
        known = {"step": 0, "layer": layer, "variant": variant}
        for name in kernels:
            stream = 8 if name.isupper() else 7
            own = known | {"name": name.lower(), "stream": stream, "region": name}
            rows.append(kernel(10 * len(rows), 10, **own))
    return placed(rows)


def test_kernels_of_each_variant() -> None:
    """One layer of each counts, and the first region of a kernel."""
    found = kernels_by_variant(layers(("A", "abb"), ("B", "Bc"), ("A", "abb")))
    expected = [
        ("a", "a", "A", 1),
        ("b", "b", "A", 2),
        ("b", "b", "B", 1),
        ("c", "c", "B", 1),
    ]
    assert_frame_equal(
        found.drop("identity"),
        pl.DataFrame(
            expected, schema=["name", "region", "variant", "kernels"], orient="row"
        ),
        check_row_order=False,
    )


def test_variants_of_equal_kernels() -> None:
    """They differ by order or by streams; others by their kernels, or how many."""
    found = alike_variants(
        layers(("A", "abc"), ("B", "acb"), ("C", "abC"), ("D", "abbc"), ("E", "abd"))
    )
    assert list(found) == [
        ("B", "A", Difference.ORDER),
        ("C", "A", Difference.STREAMS),
    ]
