"""Layers by the numbers that ranges give."""

import polars as pl
import pytest

from layerscope.analyze.layer_ranges import layers_by_ranges


def layers(*told: int | None) -> list[int | None]:
    """Those of kernels of one step for which ranges tell these numbers."""
    kernels = pl.DataFrame({"range_layer": told}, schema={"range_layer": pl.Int64})
    placed = kernels.with_columns(device=pl.lit(0), step=pl.lit(0))
    return layers_by_ranges(placed)["layer"].to_list()


def test_numbers_of_ranges() -> None:
    """Layers are numbered from 0; a kernel within one needs no range of its own."""
    told = (None, 16, 16, 17, 17, *[18] * 20, None, 18, None)
    assert layers(*told) == [None, 0, 0, 1, 1, *[2] * 22, None]


def test_encoder_before() -> None:
    """Of two stacks the one with most kernels has the layers."""
    assert layers(0, 1, 2, 0, 0, 1, 1, 2, 2) == [None, None, None, 0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize(
    "told",
    [
        pytest.param(
            (None, 0, None, 0, None, 1, None, 1), id="ranges of parts of layers"
        ),
        pytest.param((None, None, None, None, None, 0, 1), id="few kernels of a step"),
        pytest.param((0, 0, 0, 0), id="one layer only"),
        pytest.param((None, None), id="no ranges"),
    ],
)
def test_ranges_that_do_not_tell(told: tuple[int | None, ...]) -> None:
    """Then no layers come of them."""
    assert layers(*told) == [None] * len(told)


def test_streams_beside_each_other() -> None:
    """A kernel of the layer before, late on another stream, begins no stack."""
    assert layers(0, 0, 1, 0, 1, 2, 2) == [0, 0, 1, 0, 1, 2, 2]


def test_outside_of_steps() -> None:
    """Kernels in no step have no layer."""
    kernels = pl.DataFrame(
        {"range_layer": [0, 1, 0, 1], "step": [None, None, 0, 0], "device": [0] * 4}
    )
    assert layers_by_ranges(kernels)["layer"].to_list() == [None, None, 0, 1]
