from pathlib import Path
from typing import Any

import pytest

from layerscope.analyze.role_reads import RoleRead, RoleReads
from layerscope.environment import DeviceFacts
from layerscope.layers.presets import preset
from layerscope.layers.spec import LayerSpec
from layerscope.report import build_report
from layerscope.report.document import Interval, Table
from layerscope.report.limits import (
    Limits,
    limits_report,
    limits_table,
    reads_table,
    role_notes,
    role_tables,
    speeds_table,
)
from layerscope.report.measures import measures
from layerscope.run import load
from layerscope.run_header import Bound, ReadCost
from tests import edited, handmade
from tests.analyze.timelines import COSTS

RECORDED = Path(__file__).parents[2] / "fixtures/h200/qwen3-30b-a3b-tp4-rows6-bfloat16"

READS = [
    ReadCost(bytes=1_000_000, duration_ns=2_000.0),
    ReadCost(bytes=3_000_000, duration_ns=2_500.0),
]


def bound(name: str, pass_ns: float, kernels: int = 14) -> Bound:
    """A bound of a pass of 1 MB, known to 1 µs."""
    return Bound(
        arm="",
        name=name,
        pass_ns=pass_ns,
        low_ns=pass_ns - 1_000,
        high_ns=pass_ns + 1_000,
        kernels=kernels,
        bytes=1_000_000,
    )


def speeds(**changes: Any) -> list[Table]:  # noqa: ANN401 (any field of the header)
    """The tables of the run on paper, with `changes` to its header."""
    run = handmade.run(**changes)
    return list(speeds_table(run.header, measures(run).regions))


BOUNDS = (bound("no PDL", 50_000.0), bound("one read", 20_000.0, kernels=1))


def test_bounds_are_told_beside_one_read() -> None:
    """Ratio to the time of one kernel, and bytes over time."""
    table = limits_table("limits", BOUNDS)
    assert table.rows == (
        ("no PDL", 14, Interval(50_000.0, 49_000.0, 51_000.0), 2.5, 0.02),
        ("one read", 1, Interval(20_000.0, 19_000.0, 21_000.0), 1.0, 0.05),
    )
    assert [row[3] for row in limits_table("limits", BOUNDS[:1]).rows] == [None]


def test_reads_have_a_speed() -> None:
    """1 MB in 2 µs is half a terabyte a second."""
    assert reads_table(READS).rows == (
        (1_000_000, 2_000.0, 0.5),
        (3_000_000, 2_500.0, 1.2),
    )


def test_a_report_has_a_table_for_each_number_of_ranks() -> None:
    """The whole layer and slices of it, then the curve of reads."""
    device = DeviceFacts(type="cuda", name="Paper GPU", architecture="sm_90")
    whole = LayerSpec(model=preset("qwen3-30b-a3b"))
    slice_ = LayerSpec(model=preset("qwen3-30b-a3b"), tp=4, shard_shaped=True)
    measured = [Limits(whole, 41, BOUNDS), Limits(slice_, None, BOUNDS)]
    report = limits_report(device, measured, READS)
    assert report.title == "limits of qwen3-30b-a3b, layer 0"
    assert [(fact.label, fact.text) for fact in report.facts] == [
        ("device", "Paper GPU, sm_90"),
        (
            "step",
            "6 rows = 1 request × (1 + 5 draft tokens), context 8,192, KV pages of 16",
        ),
        ("types", "bfloat16 activations, bfloat16 weights"),
    ]
    assert [table.title for table in report.tables] == [
        "the whole layer: a pass of 1.000 MB, 41 experts",
        "slice of one rank of 4: a pass of 1.000 MB",
        "cold reads by one kernel, its launch included",
    ]


def test_regions_are_held_against_one_cold_read_of_their_bytes() -> None:
    """Shares of the run on paper, whose regions have one kernel each."""
    (table,) = speeds(reads=READS)
    assert [column.key for column in table.columns] == [
        *("arm", "region", "kernels", "required_bytes", "share_mean_ns"),
        *("speed_tb_per_s", "cold_read_ns", "ratio", "kernel_speed_tb_per_s"),
    ]
    numbers = [row[2:] for row in table.rows[:3]]
    assert [row[:2] for row in table.rows] == [
        (arm, region)
        for arm in ("reference", "fused")
        for region in ("attention", "o_proj_all_reduce", "moe")
    ]
    assert numbers == [
        (1, 2_000_000, 22_000.0, 2 / 22, 2_250.0, 22_000 / 2_250, 0.1),
        (1, 1_000_000, 6_000.0, 1 / 6, 2_000.0, 3.0, 0.2),
        (1, 3_000_000, 13_000.0, 3 / 13, 2_500.0, 5.2, 3 / 13),
    ]


@pytest.mark.parametrize("reads", [[], READS[:1]])
def test_without_a_curve_there_is_no_such_table(reads: list[ReadCost]) -> None:
    """One point is none: there is nothing between."""
    assert speeds(reads=reads) == []


def test_without_known_bytes_there_is_no_such_table() -> None:
    """As of foreign callables, whose bytes nobody knows."""
    assert speeds(reads=READS, bytes=[]) == []


def roles(*, has_waits: bool = False) -> RoleReads:
    """A product of two kernels that took 4 µs, and one whose roles overlap."""
    product = RoleRead(
        roles=("qkv",),
        kernels=2,
        required_bytes=2_000_000,
        duration_ns=3_000.0,
        time_ns=4_000.0,
        cold_read_ns=2_500.0,
    )
    expert = RoleRead(
        roles=("gate_up", "gate_up+activation"),
        kernels=2,
        required_bytes=6_000_000,
        duration_ns=5_000.0,
        time_ns=6_000.0,
        cold_read_ns=4_000.0,
    )
    return RoleReads((product, expert), has_waits=has_waits)


def test_kernels_are_held_against_one_cold_read_by_role() -> None:
    """2 MB in 4 µs are half a terabyte a second; the title says whose records."""
    mine, other = role_tables({"a": roles(), "b": roles(has_waits=True)})
    assert mine.title == "kernels of a by role against cold reads, serial twin"
    assert (
        other.title == "kernels of b by role against cold reads, as captured, waits "
        "included"
    )
    assert [column.key for column in mine.columns] == [
        *("role", "kernels", "required_bytes", "duration_ns", "time_ns"),
        *("speed_tb_per_s", "cold_read_ns", "ratio"),
    ]
    assert (
        mine.rows
        == other.rows
        == (
            ("qkv", 2, 2_000_000, 3_000.0, 4_000.0, 0.5, 2_500.0, 1.6),
            (
                *("gate_up, gate_up+activation", 2, 6_000_000),
                *(5_000.0, 6_000.0, 1.0, 4_000.0, 1.5),
            ),
        )
    )


def test_notes_say_what_times_by_role_hold() -> None:
    """What is required, whether the profiler is in it, and of whom waits are."""
    twin, waiting = roles(), roles(has_waits=True)
    known = handmade.header(observer_costs=COSTS)
    told = (
        "required of a role are weights, and cached K and V; its kernels' durations "
        "and the gaps before them, {} what the profiler adds, stand beside one cold "
        "read of as many bytes, its launch included"
    )
    waits = (
        "b: without a serial twin, kernels by role are as captured: their times hold "
        "what they wait and what the profiler adds"
    )
    less, added = told.format("less"), told.format("with")
    assert list(role_notes(known, {})) == []
    assert list(role_notes(known, {"a": twin})) == [less]
    assert list(role_notes(known, {"a": twin, "b": waiting})) == [less, waits]
    assert list(role_notes(known, {"b": waiting})) == [added, waits]
    assert list(role_notes(handmade.header(), {"a": twin})) == [added]


def test_runs_without_roles_have_no_such_table() -> None:
    """The run on paper has experiments and a curve, but its kernels no roles."""
    report = build_report(edited.run())
    assert not [each for each in report.tables if "by role" in each.title]
    assert not [each for each in report.notes if "required of a role" in each]


def test_a_recorded_draft_is_held_against_the_curve_of_its_layers_run() -> None:
    """19.4 MB of w2 and 152 kB of logits a token; four kernels of plain torch."""
    (draft,) = build_report(load(RECORDED)).parts
    (table,) = (each for each in draft.tables if "by role" in each.title)
    assert table.title == "kernels of reference by role against cold reads, serial twin"
    assert [row[:4] for row in table.rows] == [
        ("token_1", 4, 19_599_744, 20_224.0),
        ("token_2", 4, 19_599_744, 18_303.0),
        ("token_3", 4, 19_599_744, 18_079.5),
        ("token_4", 4, 19_599_744, 18_143.5),
        ("token_5", 4, 19_599_744, 17_984.0),
    ]
    # 16.78 MB take 5.363 µs there and 33.55 MB 8.913 µs
    assert [row[6] for row in table.rows] == [pytest.approx(5_960, abs=1)] * 5
    required = (
        "required of a role are w2 and base logits; its kernels' durations and the "
        "gaps before them, less what the profiler adds, stand beside one cold read of "
        "as many bytes, its launch included"
    )
    assert [note for note in draft.notes if "w2" in note] == [
        required,
        "tokens after the first find as much of w2 as the cache holds",
    ]
