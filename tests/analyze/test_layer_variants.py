"""Variants of layers and places in them."""

import polars as pl
from polars.testing import assert_frame_equal

from layerscope.analyze.layer_variants import variant_name, with_variants


def layered(*kernels: tuple[int | None, int, int]) -> pl.DataFrame:
    """Kernels of one step as (layer, stream, identity)."""
    frame = pl.DataFrame(
        kernels,
        schema={"layer": pl.Int64, "_lane": pl.Int64, "_identity": pl.Int64},
        orient="row",
    )
    return frame.with_columns(device=pl.lit(0, pl.Int64), step=pl.lit(0, pl.Int64))


def test_variants() -> None:
    """The kind of most layers is A; kernels outside of layers have none."""
    kernels = layered(
        (None, 7, 9),
        (0, 7, 5),
        (1, 7, 1),
        (1, 7, 2),
        (2, 7, 1),
        (2, 7, 2),
        (None, 7, 9),
    )
    expected = kernels.with_columns(
        variant=pl.Series([None, "B", "A", "A", "A", "A", None]),
        position=pl.Series([None, 0, 0, 1, 0, 1, None], dtype=pl.Int64),
    )
    assert_frame_equal(with_variants(kernels), expected)


def test_streams_in_any_order() -> None:
    """Which stream was earlier tells no variants apart, the order on a stream does."""
    kernels = layered(
        *[(0, 7, 1), (0, 9, 3), (0, 7, 2)],
        *[(1, 7, 1), (1, 7, 2), (1, 9, 3)],
        *[(2, 7, 2), (2, 7, 1), (2, 9, 3)],
    )
    found = with_variants(kernels)
    assert found["variant"].to_list() == ["A"] * 6 + ["B"] * 3
    assert found["position"].to_list() == [0, 1, 2] * 3


def test_letters_are_of_a_device() -> None:
    """Another device has kernels of its own, and its most common layer is A too."""
    one = layered((0, 7, 1), (1, 7, 1), (2, 7, 2))
    two = layered((0, 7, 3), (1, 7, 2), (2, 7, 2)).with_columns(device=pl.lit(1))
    found = with_variants(pl.concat([one, two], how="vertical_relaxed"))
    assert found["variant"].to_list() == ["A", "A", "B", "B", "A", "A"]
    nobody = one.with_columns(device=pl.lit(None, pl.Int64))
    assert with_variants(nobody)["variant"].to_list() == ["A", "A", "B"]


def test_names() -> None:
    """After Z come names of two letters."""
    assert [variant_name(index) for index in (0, 25, 26, 51, 52, 701, 702)] == [
        *("A", "Z", "AA", "AZ", "BA", "ZZ", "AAA"),
    ]
