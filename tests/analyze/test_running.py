import polars as pl
from polars.testing import assert_frame_equal

from layerscope.analyze.running import running


def test_every_change_is_a_row() -> None:
    """Touching kernels change nothing, as do those of no length; lines are apart."""
    kernels = pl.DataFrame(
        {
            "arm": ["a", "a", "a", "a", "b"],
            "start_ns": [0, 10, 15, 18, 5],
            "end_ns": [10, 20, 30, 18, 6],
        }
    )
    expected = pl.DataFrame(
        {
            "arm": ["a"] * 4 + ["b"] * 2,
            "at_ns": [0, 15, 20, 30, 5, 6],
            "running": [1, 2, 1, 0, 1, 0],
        }
    )
    assert_frame_equal(running(kernels, ["arm"]), expected)
