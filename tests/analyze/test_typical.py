import polars as pl
from polars.testing import assert_frame_equal

from layerscope.analyze.typical import typical_pass
from layerscope.schema import KERNELS, empty
from tests.analyze.timelines import Kernel, one_pass

ATTEND = Kernel("attention", "attend", 5_000, role="attend")
NORM = Kernel("attention", "norm", 1_000, blocks=6)
EXPERTS = Kernel("moe", "experts", 9_000)


def passes(*chains: list[Kernel]) -> pl.DataFrame:
    """One pass of each chain, in one replay."""
    return pl.concat(
        one_pass(chain, pass_index=pl.lit(index, pl.Int64))
        for index, chain in enumerate(chains)
    )


def test_kernels_are_numbered_within_their_region() -> None:
    """Regions may alternate; within each, the order of nodes counts."""
    found = typical_pass(passes([ATTEND, EXPERTS, NORM])).kernels
    expected = pl.DataFrame(
        {
            "region": ["attention", "attention", "moe"],
            "ordinal": [0, 1, 0],
            "role": ["attend", None, None],
            "name": ["attend", "norm", "experts"],
            "grid_x": [101, 6, 101],
            "grid_y": [1, 1, 1],
            "grid_z": [1, 1, 1],
            "block_x": [256, 256, 256],
            "block_y": [1, 1, 1],
            "block_z": [1, 1, 1],
        }
    )
    assert_frame_equal(found, expected)


def test_the_most_common_list_is_typical() -> None:
    """Passes with another number of kernels, or other names, are not alike."""
    renamed = [ATTEND, NORM._replace(name="norm_2")]
    found = typical_pass(passes([ATTEND], renamed, [ATTEND, NORM], [ATTEND, NORM]))
    assert (found.passes, found.passes_alike) == (4, 2)
    assert found.kernels["name"].to_list() == ["attend", "norm"]
    assert found.alike.select("pass_index", "name", "ordinal").rows() == [
        (2, "attend", 0),
        (2, "norm", 1),
        (3, "attend", 0),
        (3, "norm", 1),
    ]


def test_of_equally_common_lists_the_earliest_counts() -> None:
    """Which list is typical does not depend on chance."""
    found = typical_pass(passes([NORM], [ATTEND], [ATTEND], [NORM]))
    assert found.kernels["name"].to_list() == ["norm"]


def test_a_role_makes_another_list() -> None:
    """Kernels of one name and another role, or none, are not the same list."""
    bare = ATTEND._replace(role=None)
    found = typical_pass(passes([ATTEND], [bare], [bare]))
    assert found.passes_alike == 2
    assert found.kernels["role"].to_list() == [None]


def test_a_grid_may_grow() -> None:
    """A grid that follows the context makes no other list; the first one is shown."""
    found = typical_pass(passes([NORM], [NORM._replace(blocks=7)]))
    assert found.passes_alike == 2
    assert found.kernels["grid_x"].to_list() == [6]


def test_no_passes() -> None:
    """Without rows, no pass is alike."""
    found = typical_pass(empty(KERNELS))
    assert (found.passes, found.passes_alike) == (0, 0)
    assert found.kernels.is_empty()
    assert found.alike.is_empty()
