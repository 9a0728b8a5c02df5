from functools import partial
from io import BytesIO
from pathlib import Path

import polars as pl
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.analyze.median_pass import pictured_kernels
from layerscope.errors import InputError
from layerscope.render.perfetto import Exported, export, export_all, export_median
from layerscope.render.perfetto.picture import process_name
from layerscope.replays import load_without_kernels, read_replays
from layerscope.run import Run, load
from layerscope.schema import EDGES, KERNELS, SAMPLES, empty
from tests.perfetto import runs
from tests.perfetto.reading import Read, kernels_of, read

ROOT = Path(__file__).parents[3]
RECORDED = ROOT / "fixtures" / "h200" / "qwen3-30b-a3b-tp4-rows6-bfloat16" / "draft"


def median(run: Run, arms: tuple[str, ...] = ()) -> Read:
    """The exported median passes, read back."""
    file = BytesIO()
    export_median(run, file, arms)
    return read(file.getvalue())


def everything(folder: Path, arms: tuple[str, ...] = ()) -> Read:
    """All exported passes, read back."""
    file = BytesIO()
    export_all(load_without_kernels(folder), file, arms)
    return read(file.getvalue())


def of(
    found: Read, process: str, category: str, *columns: str
) -> list[tuple[object, ...]]:
    """Fields of the slices of one process."""
    rows = found.rows(category, "process", *columns)
    return [row[1:] for row in rows if row[0] == process]


def test_all_kernels_come_back(tmp_path: Path) -> None:
    """A trace of all passes holds the run's whole frame of kernels."""
    folder = runs.write(tmp_path / "run")
    assert_frame_equal(kernels_of(everything(folder)), load(folder).kernels)


def test_kernels_come_back_whatever_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of a run are no shorter than a replay, and make the same trace."""
    folder = runs.write(tmp_path / "run")
    monkeypatch.setattr(export, "read_replays", partial(read_replays, rows=7))
    assert_frame_equal(kernels_of(everything(folder)), load(folder).kernels)


def test_replays_of_all_arms_begin_together(tmp_path: Path) -> None:
    """The second pass of each replay, the first that counts, begins at one time."""
    found = everything(runs.write(tmp_path / "run"))
    starts = [row[1] for row in found.rows("pass", "pass", "start_ns") if row[0] == 1]
    assert starts == [100_000] * 3 + [300_000] * 3


def test_median_passes_begin_together() -> None:
    """Each graph is a process; its median pass begins where the others' do."""
    found = median(runs.run())
    assert found.processes == ["reference", "fused", "fused (serial)"]
    assert of(found, "fused", "pass", "name", "start_ns", "end_ns", "depth") == [
        ("pass 0", 99_060, 100_000, 0),
        ("pass 1, the median", 100_000, 101_000, 0),
        ("pass 2", 101_000, 102_000, 0),
    ]
    assert of(found, "reference", "pass", "name", "start_ns")[1] == (
        "pass 1, the median",
        100_000,
    )


@settings(max_examples=30)
@given(st.integers(runs.PERIOD_NS, 300_000))
@example(100_000)  # the first pass shown begins just before a round time
def test_times_are_right_whatever_a_pass_takes(period_ns: int) -> None:
    """Kernels and gaps stand where they were, and as long, for passes of any length."""
    index = pl.col("pass_index")
    # The second pass takes a little longer than the third, which so is the median, and
    # the first pass shown is one that begins with a gap.
    pass_start = index * period_ns + pl.when(index > 0).then(5).otherwise(0)
    run = runs.run(kernels=runs.kernels().with_columns(pass_start_ns=pass_start))
    assert_true_to(median(run), run)


def test_times_of_a_recorded_run_are_right() -> None:
    """A draft whose first gap reaches over a round time is as it was recorded."""
    run = load(RECORDED)
    assert_true_to(median(run), run)


def assert_true_to(found: Read, run: Run) -> None:
    """Median passes begin together, and all else is as far from that as recorded."""
    starts = {
        row[1] for row in found.rows("pass", "name", "start_ns") if "median" in row[0]
    }
    assert len(starts) == 1
    begin_ns = starts.pop()
    kernels, gaps = [], []
    for row in pictured_kernels(run.kernels).rows(named=True):
        process = process_name(row["arm"], row["experiment"])
        start_ns, end_ns = row["start_ns"] + begin_ns, row["end_ns"] + begin_ns
        kernels.append((process, row["node"], start_ns, end_ns))
        if row["gap_ns"]:
            begun_ns = start_ns - row["gap_ns"]
            gaps.append((process, row["node"], begun_ns, start_ns))
    columns = ("process", "node", "start_ns", "end_ns")
    assert sorted(found.rows("kernel", *columns)) == sorted(kernels)
    assert sorted(found.rows("gap", *columns)) == sorted(gaps)


def test_regions_lie_within_their_pass() -> None:
    """They follow each other without a hole, as shares do."""
    found = of(
        median(runs.run()), "fused", "region", "name", "start_ns", "end_ns", "depth"
    )
    assert found[2:4] == [
        ("attention", 100_000, 100_460, 1),
        ("moe", 100_460, 101_000, 1),
    ]


def test_gaps_are_named_by_what_ended_them() -> None:
    """By the region that owns the gap, then the kernel."""
    found = median(runs.run())
    rows = of(found, "fused", "gap", "name", "track", "start_ns", "end_ns")
    assert rows[1:3] == [
        ("attention: memcpy", "gaps", 100_000, 100_060),
        ("attention: attend", "gaps", 100_150, 100_160),
    ]
    assert not any(each.flows for each in found.of("gap"))


def test_kernels_that_overlap_on_a_stream_are_beside_each_other() -> None:
    """They keep their times, and go to a track of their own."""
    found = median(runs.run())
    rows = of(found, "fused", "kernel", "node", "track", "start_ns", "end_ns")
    assert [row for row in rows if row[0] in range(5, 10)] == [
        (5, "stream 7", 100_060, 100_150),
        (6, "stream 7", 100_160, 100_460),
        (7, "stream 7, beside 1", 100_450, 100_750),
        (8, "stream 9", 100_500, 101_000),
        (9, "stream 7", 101_000, 101_000),
    ]
    assert {each.depth for each in found.of("kernel")} == {0}


def test_what_is_told_of_a_kernel() -> None:
    """All that is known of it and nothing that is not, such as a grid of a copy."""
    found = median(runs.run())
    copy, kernel = (
        each.arguments
        for each in found.of("kernel")
        if each.process == "fused" and each.arguments["node"] in (5, 7)
    )
    replay = {"capture": 5, "round": 0, "replay": 0}
    assert copy == replay | {
        "kind": "copy",
        "region": "attention",
        "pass": 1,
        "node": 5,
        "gap_ns": 60,
        "hidden_ns": 0,
        "stream": 7,
        "after": [4],
    }
    assert kernel == replay | {
        "kind": "kernel",
        "region": "moe",
        "role": "gate_up",
        "pass": 1,
        "node": 7,
        "gap_ns": 0,
        "hidden_ns": 10,
        "grid": {"x": 132, "y": 2, "z": 1},
        "block": {"x": 256, "y": 1, "z": 1},
        "registers": 64,
        "static_shared_bytes": 48,
        "dynamic_shared_bytes": 1024,
        "stream": 7,
        "after_programmatic": [6],
    }


def test_flows_join_the_ends_of_edges() -> None:
    """Every edge between kernels that are shown is a flow of two; twins have none."""
    found = median(runs.run())
    ends: dict[int, list[object]] = {}
    for each in found.of("kernel"):
        for flow in each.flows:
            assert each.process == "fused"
            ends.setdefault(flow, []).append(each.arguments["node"])
    edges = runs.edges().filter(pl.col("target") < 15)
    assert sorted(ends.values()) == sorted(
        map(list, edges.select("source", "target").rows())
    )


def test_flows_of_replays_are_apart(tmp_path: Path) -> None:
    """No flow leads from one replay to another."""
    found = everything(runs.write(tmp_path / "run"))
    replays: dict[int, set[object]] = {}
    for each in found.of("kernel"):
        for flow in each.flows:
            replays.setdefault(flow, set()).add(each.arguments["replay"])
    assert len(replays) == 2 * runs.edges().height
    assert {len(each) for each in replays.values()} == {1}


def test_counters_say_what_runs_and_where_levels_were_read() -> None:
    """Kernels running change as they do; clock and power are medians of the anchors."""
    counters = median(runs.run(), ("fused",)).counters
    running = "kernels running (of those recorded)"
    assert counters["fused", running][8:14] == [
        (100_060, 1),
        (100_150, 0),
        (100_160, 1),
        (100_450, 2),
        (100_460, 1),
        (100_500, 2),
    ]
    named = "(NVML, median of the rounds of anchors)"
    whole = (99_060, 102_000)
    assert counters["fused", f"SM clock {named}"] == [(at, 1_980) for at in whole]
    assert counters["fused", f"power {named}"] == [(at, 311) for at in whole]
    assert [track for process, track in counters if process == "fused (serial)"] == [
        running
    ]


def test_some_arms(tmp_path: Path) -> None:
    """Arms are shown in the order asked for, each with its twins."""
    found = median(runs.run(), ("fused", "reference"))
    assert found.processes == ["fused", "fused (serial)", "reference"]
    folder = runs.write(tmp_path / "run")
    assert everything(folder, ("reference",)).processes == ["reference"]


def test_operators_without_a_stream() -> None:
    """What a CPU ran has one track; nothing is told of clocks that nobody read."""
    kernels = runs.kernels().with_columns(stream=pl.lit(None, pl.Int64))
    found = median(runs.run(kernels=kernels, samples=empty(SAMPLES)), ("reference",))
    assert {each.track for each in found.of("kernel")} == {"no stream"}
    assert [track for _, track in found.counters] == [
        "kernels running (of those recorded)"
    ]


def test_how_much_was_written(tmp_path: Path) -> None:
    """Graphs, passes and kernels are counted."""
    assert export_median(runs.run(), BytesIO()) == Exported(3, 9, 36)
    folder = runs.write(tmp_path / "run")
    assert export_all(load_without_kernels(folder), BytesIO()) == Exported(3, 24, 96)


def test_a_run_without_kernels(tmp_path: Path) -> None:
    """There is nothing to show, and the error says so."""
    run = runs.run(kernels=empty(KERNELS), edges=empty(EDGES))
    with pytest.raises(InputError, match="paper-run has no kernels: nothing was rec"):
        export_median(run, BytesIO())
    folder = runs.write(tmp_path / "run", kernels=run.kernels)
    with pytest.raises(InputError, match="has no kernels"):
        export_all(load_without_kernels(folder), BytesIO())


def test_an_arm_that_was_not_recorded() -> None:
    """The error names those that were."""
    with pytest.raises(InputError, match="of 'fast'; there are fused, reference"):
        export_median(runs.run(), BytesIO(), ("fast",))


def test_replays_without_a_pass_that_counts() -> None:
    """Two passes have no median between them; --all shows them."""
    kernels = runs.kernels().filter(pl.col("pass_index") < 2)
    with pytest.raises(InputError, match="no pass between two others; --all shows"):
        export_median(runs.run(kernels=kernels), BytesIO())
