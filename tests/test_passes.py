import polars as pl
from polars.testing import assert_frame_equal

from layerscope.passes import PASS_KEYS, first_pass, used_passes


def replays(*indices: list[int]) -> pl.DataFrame:
    """A row each of these passes, a replay a list."""
    rows = [
        ("a", "captured", 0, 0, replay, index)
        for replay, passes in enumerate(indices)
        for index in passes
    ]
    return pl.DataFrame(rows, schema=list(PASS_KEYS), orient="row")


def test_first_and_last_pass_do_not_count() -> None:
    """Nor does what comes before the first; every replay has ends of its own."""
    found = replays([-1, 0, 1, 1, 2, 3], [4, 2, 3], [0, 1], [-1], [-1, 7])
    used = used_passes(found).select("replay", "pass_index").rows()
    assert used == [(0, 1), (0, 1), (0, 2), (1, 3)]


def test_no_rows_are_no_passes() -> None:
    """An empty frame stays as it is."""
    nothing = replays([0]).clear()
    assert_frame_equal(used_passes(nothing), nothing)


def test_the_first_pass() -> None:
    """What comes before all passes is not one."""
    found = replays([-1, 3, 4], [-1]).group_by("replay").agg(first_pass())
    assert found.sort("replay").rows() == [(0, 3), (1, None)]
