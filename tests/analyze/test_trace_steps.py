"""Steps of traces."""

import polars as pl
from polars.testing import assert_frame_equal

from layerscope.analyze.trace_steps import StepBy, find_steps
from tests.analyze.planted import Model, calls, plain, ranges, rows

NO_CALLS, NO_RANGES = calls(), ranges()
MODEL = Model(
    plain(6).layers, ("copy", "input", "embed"), ("lm_head", "topk", "argmax")
)


def told(kernels: pl.DataFrame) -> list[tuple[int | None, str | None, str | None, int]]:
    """Step, kind, source and number of kernels, in order."""
    runs = kernels.with_columns(_run=pl.col("step").rle_id())
    keys = ["step", "step_kind", "step_by"]
    return (
        runs.group_by("_run", maintain_order=True)
        .agg(pl.col(keys).first(), pl.len())
        .select(*keys, "len")
        .rows()
    )


def test_ranges() -> None:
    """Steps of ranges, in order of their kernels; rows stay as they were."""
    kernels = rows(["a", "b", "c"], correlation=[1, 2, 3])
    made = calls(*({"correlation": each, "start_ns": 10 * each} for each in (1, 2, 3)))
    spans = ranges(("step[EXTEND bs=1]", 0, 15), ("step[DECODE bs=1]", 15, 25))
    expected = kernels.with_columns(
        step=pl.Series([0, 1, None], dtype=pl.Int64),
        step_kind=pl.Series(["prefill", "decode", None]),
        step_by=pl.Series(["ranges", "ranges", None]),
    )
    assert_frame_equal(find_steps(kernels, made, spans), expected)


def test_one_range_over_all() -> None:
    """A range that covers everything is a step, too."""
    found = find_steps(rows(["a", "b"]), NO_CALLS, ranges(("ProfilerStep#1", 0, 9_999)))
    assert told(found) == [(0, "unknown", StepBy.RANGES, 2)]


def test_profiler_step_of_several_passes() -> None:
    """It is split where the device was idle between two stacks of layers."""
    names, _, _ = MODEL.kernels()
    size = len(names)
    starts = [1_100 * each + 5_000 * (each // size) for each in range(3 * size)]
    kernels = rows(names * 3, start_ns=starts)
    found = find_steps(kernels, NO_CALLS, ranges(("ProfilerStep#1", 0, 10**9)))
    assert told(found) == [(each, "unknown", StepBy.RANGES, size) for each in range(3)]


def test_step_of_an_engine_is_one() -> None:
    """A range that is one forward pass is not split."""
    names, _, _ = MODEL.kernels()
    spans = ranges(("step[DECODE bs=1]", 0, 10**9))
    found = find_steps(rows(names * 3), NO_CALLS, spans)
    assert told(found) == [(0, "decode", StepBy.RANGES, 3 * len(names))]


def test_launches_of_graphs() -> None:
    """Each replay that repeats a layer is a step; what is around it is in none."""
    names, _, _ = MODEL.kernels()
    size = len(names)
    kernels = rows(
        ["copy", *names, "copy", *names],
        correlation=[1, *[2] * size, 3, *[4] * size],
    )
    made = calls(
        *(
            {"correlation": each, "start_ns": each, "name": name}
            for each, name in enumerate(("copy", "hipGraphLaunch") * 2, start=1)
        )
    )
    by = StepBy.GRAPHS
    assert told(find_steps(kernels, made, NO_RANGES)) == [
        (None, None, None, 1),
        (0, "unknown", by, size),
        (None, None, None, 1),
        (1, "unknown", by, size),
    ]
    assert told(find_steps(kernels, NO_CALLS, NO_RANGES))[1] == (0, "unknown", by, size)


def test_pieces_of_graphs_are_no_steps() -> None:
    """Replays of parts of a layer make one step together."""
    names, _, _ = MODEL.kernels()
    pieces = [each // 10 for each in range(len(names))]
    found = find_steps(rows(names, correlation=pieces), NO_CALLS, NO_RANGES)
    assert told(found) == [(0, "unknown", StepBy.DEVICE, len(names))]


def test_stacks_of_layers() -> None:
    """Without ranges and graphs, layers that come again show steps."""
    names, _, _ = MODEL.kernels()
    size = len(names)
    starts = [1_100 * each + 5_000 * (each // size) for each in range(4 * size)]
    found = find_steps(rows(names * 4, start_ns=starts), NO_CALLS, NO_RANGES)
    assert told(found) == [(each, "unknown", StepBy.STACKS, size) for each in range(4)]


def test_devices_apart() -> None:
    """Steps of each device are numbered from 0."""
    kernels = rows(["a", "b", "a", "b"], device=[0, 0, 1, 1])
    found = find_steps(kernels, NO_CALLS, NO_RANGES)
    assert found["step"].to_list() == [0, 0, 0, 0]


def test_no_kernels() -> None:
    """Nothing gives nothing, with all columns."""
    found = find_steps(rows([]), NO_CALLS, NO_RANGES)
    assert found.columns[-3:] == ["step", "step_kind", "step_by"]
    assert found.is_empty()
