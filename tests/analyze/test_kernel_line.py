"""Kernels as numbers."""

import numpy as np
import polars as pl

from layerscope.analyze.kernel_line import kernel_arrays, rows_by
from tests.analyze.planted import rows


def test_arrays() -> None:
    """One entry a kernel; kernels outside of steps are of step -1."""
    kernels = rows(
        ["a", "core_b", "silu", "a"], stream=[7, 7, 7, 9], device=[0, 0, 0, 1]
    )
    arrays = kernel_arrays(
        kernels.with_columns(step=pl.Series([0, 0, None, 0], dtype=pl.Int64))
    )
    assert arrays.step[0] == arrays.step[1] != arrays.step[3]
    assert arrays.step[2] == -1
    assert arrays.lane.tolist() == [1, 1, 1, 2]
    assert arrays.end_ns.tolist() == [1_000, 2_100, 3_200, 4_300]
    assert arrays.identity[0] == arrays.identity[3]
    assert arrays.is_core.tolist() == [False, True, False, False]
    assert arrays.is_feed.tolist() == [False, False, True, False]


def test_main_lane_and_line() -> None:
    """The stream with most kernels; identities of its kernels are dense."""
    kernels = rows(["a", "b", "c", "a"], stream=[7, 9, 7, 7])
    arrays = kernel_arrays(kernels.with_columns(step=pl.lit(0, pl.Int64)))
    every = np.arange(4)
    is_main = arrays.main_lane(every)
    assert is_main.tolist() == [True, False, True, True]
    line = arrays.line(every[is_main])
    assert (len(line), line.identity.tolist()) == (3, [0, 1, 0])


def test_rows_by() -> None:
    """Rows of each number, those of negative ones left out."""
    numbers = np.array([2, -1, 0, 2, 0])
    assert [rows.tolist() for rows in rows_by(numbers)] == [[2, 4], [0, 3]]
    assert list(rows_by(np.array([], dtype=np.int64))) == []


def test_key() -> None:
    """Equal for equal kernels, whenever they ran."""
    arrays = kernel_arrays(rows(["a", "b", "a", "b", "b"]).with_columns(step=pl.lit(0)))
    assert arrays.key(np.array([0, 1])) == arrays.key(np.array([2, 3]))
    assert arrays.key(np.array([0, 1])) != arrays.key(np.array([3, 4]))


def test_lane_of_cores() -> None:
    """Copies on another stream may be more than the kernels of the model."""
    kernels = rows(["core_full", "copy", "copy"], stream=[7, 9, 9])
    arrays = kernel_arrays(kernels.with_columns(step=pl.lit(0, pl.Int64)))
    assert arrays.main_lane(np.arange(3)).tolist() == [True, False, False]
