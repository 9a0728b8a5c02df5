import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope_standard.splitting import (
    down_parts,
    product_splits,
    stream_depth,
    tiles_per_split,
    units_of,
)

H200 = 132


@pytest.mark.parametrize(
    ("tiles", "units", "splits"),
    [(320, 64, 2), (80, 64, 3), (48, 64, 5), (128, 32, 1), (8, 64, 6), (8, 4, 1)],
    ids=["qkv", "qkv-of-4", "qkv-of-8", "o-of-4", "router", "short"],
)
def test_products_are_cut_where_tiles_are_few(
    tiles: int, units: int, splits: int
) -> None:
    """Qwen's products on an H200; every warp keeps a unit."""
    assert product_splits(tiles, units, H200) == splits


@pytest.mark.parametrize(
    ("tiles", "heads", "each"),
    [(129, 4, 4), (129, 1, 1), (129, 8, 9), (1, 8, 1), (3, 1000, 3)],
)
def test_a_context_is_cut_so_that_processors_end_together(
    tiles: int, heads: int, each: int
) -> None:
    """One round of blocks rather than two short ones, and none where heads are many."""
    assert tiles_per_split(tiles, heads, H200) == each


@given(st.integers(1, 4000), st.integers(1, 64), st.integers(1, 200))
def test_splits_of_a_context_are_few(tiles: int, heads: int, processors: int) -> None:
    """No more than the kernel that joins them takes."""
    each = tiles_per_split(tiles, heads, processors)
    assert 1 <= -(-tiles // each) <= 512


@pytest.mark.parametrize(
    ("experts", "units", "parts"), [(48, 6, 1), (8, 6, 2), (1, 448, 16), (1, 3, 3)]
)
def test_experts_are_cut_where_they_are_few(
    experts: int, units: int, parts: int
) -> None:
    """Every warp of a block has a part, as far as there are units."""
    assert down_parts(experts, units) == parts


def test_units_in_flight_across_experts() -> None:
    """The most of four, three and two that an expert is a multiple of, else four."""
    depths = [stream_depth(units) for units in range(13)]
    assert depths == [4, 4, 2, 3, 4, 4, 3, 4, 4, 3, 2, 4, 4]


def test_the_last_unit_may_be_ragged() -> None:
    """What is beyond whole units makes one more."""
    assert [units_of(inputs, 64) for inputs in (16, 64, 80)] == [1, 1, 2]
