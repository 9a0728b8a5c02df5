from typing import Any

import pytest

from layerscope.environment import DeviceFacts
from layerscope.layers.presets import preset
from layerscope.layers.spec import LayerSpec
from layerscope.report.document import Interval, Table
from layerscope.report.limits import (
    Limits,
    limits_report,
    limits_table,
    reads_table,
    speeds_table,
)
from layerscope.report.measures import measures
from layerscope.run_header import Bound, ReadCost
from tests import handmade

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
