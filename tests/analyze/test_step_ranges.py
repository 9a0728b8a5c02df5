"""Kernels in ranges that name steps."""

import polars as pl

from layerscope.analyze.step_names import Source
from layerscope.analyze.step_ranges import steps_by_ranges
from tests.analyze.planted import ranges, rows


def steps(
    spans: pl.DataFrame, starts: list[int], launches: list[int | None], **fields: object
) -> list[int | None]:
    """The step of each kernel: its start, and when it was launched."""
    kernels = rows(["gemm"] * len(starts), start_ns=starts, duration_ns=10, **fields)
    told = kernels.with_row_index("_row").with_columns(
        _launch_ns=pl.Series(launches, dtype=pl.Int64)
    )
    found = steps_by_ranges(told, spans)
    assert found.columns == ["_step", "step_kind", "source"]
    return found["_step"].to_list()


TWO = ranges(("ProfilerStep#1", 0, 100), ("ProfilerStep#2", 100, 200))


def test_launches_count() -> None:
    """A kernel is of the step that launched it, also where it ran in another one."""
    assert steps(TWO, [50, 120, 220, 300], [10, 99, 100, 250]) == [0, 0, 1, None]


def test_without_launch() -> None:
    """Then it is of the step whose kernels ran around it, if any did."""
    found = steps(TWO, [1, 50, 55, 60, 70], [None, 10, None, 20, None])
    assert found == [None, 0, 0, 0, None]


def test_no_launches_at_all() -> None:
    """Then ranges on the device count, or else the time of kernels."""
    on_device = ranges(("ProfilerStep#1", 300, 400), device=0, stream=7)
    both = pl.concat([TWO, on_device])
    assert steps(both, [50, 320], [None, None]) == [None, 0]
    assert steps(TWO, [50, 120], [None, None]) == [0, 1]


def test_ranges_of_streams() -> None:
    """The ranges that several streams have of one step are one step."""
    spans = pl.concat(
        [
            ranges(("step 1", 0, 100), ("step 2", 110, 200), device=0, stream=7),
            ranges(("step 1", 5, 120), ("step 2", 130, 210), device=0, stream=9),
        ]
    )
    found = steps(spans, [10, 115, 115, 140], [None] * 4, stream=[7, 7, 9, 9])
    assert found == [0, 1, 0, 1]


def test_other_devices() -> None:
    """Ranges on another device say nothing of this one."""
    elsewhere = ranges(("ProfilerStep#1", 0, 100), device=1, stream=7)
    assert steps(elsewhere, [50], [None]) == [None]


def test_nested_ranges() -> None:
    """What lies within a step of the same source is not one of its own."""
    spans = ranges(("step 1", 0, 100), ("step 2", 20, 40), ("step 3", 100, 150))
    assert steps(spans, [0, 1, 2], [10, 30, 120]) == [0, 0, 1]


def test_processes() -> None:
    """Each process has its own steps."""
    spans = pl.concat(
        [ranges(("step 1", 0, 100), process=1), ranges(("step 1", 50, 150), process=2)]
    )
    found = steps(spans, [0, 1, 2], [60, 60, 120], process=[1, 2, 1])
    assert found[0] is not None
    assert found[1] not in {None, found[0]}
    assert found[2] is None


def test_closest_source() -> None:
    """Of several the one closest to a forward pass is taken, if it has enough."""
    spans = pl.concat([ranges(("step[DECODE bs=1]", 20, 40)), TWO])
    kernels = rows(["gemm"] * 4).with_row_index("_row")

    def source(*launches: int) -> int:
        told = kernels.with_columns(_launch_ns=pl.Series(launches, dtype=pl.Int64))
        return int(steps_by_ranges(told, spans)["source"].drop_nulls()[0])

    assert source(10, 25, 30, 50) == Source.SGLANG
    assert source(10, 25, 50, 60) == Source.PROFILER


def test_no_steps() -> None:
    """Without such ranges, no kernel is in any."""
    assert steps(ranges(("aten::add", 0, 100)), [0], [50]) == [None]
    assert steps(ranges(), [], []) == []
