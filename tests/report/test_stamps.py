from dataclasses import replace

import polars as pl

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.stamps import StampedPass
from layerscope.analyze.verdicts import Comparison, Verdict
from layerscope.render.topics import Topic, by_topic
from layerscope.report import build_report
from layerscope.report.stamps import stamp_notes, stamp_tables
from layerscope.schema import STAMPS
from tests import switched

KERNELS = pl.DataFrame(
    {
        "role": ["qkv", "attention"],
        "blocks": [2.0, 3.0],
        "empty_blocks": [0.0, 1.0],
        "early_ns": [None, 40.0],
        "handover_ns": [None, 60.0],
        "work_ns": [190.0, 400.0],
        "block_waits_ns": [40.0, 100.0],
        "block_works_ns": [165.0, 295.0],
        "triggers_ns": [120.0, None],
    }
)
COST = Comparison(
    Estimate(500.0, 400.0, 600.0, 6, 6.0), 500 / 34_000, Verdict.SLOWER, ""
)
FOUND = StampedPass(arm="paper", readings=8, kernels=KERNELS, tick_ns=32, cost=COST)


def test_kernels_have_a_row_each_and_their_sum_one() -> None:
    """Only what adds up is added up."""
    (table,) = stamp_tables([FOUND])
    assert table.title == "kernels of paper by their blocks, mean of 8 readings"
    assert table.rows == (
        ("qkv", 2.0, 0.0, None, None, 190.0, 40.0, 165.0, 120.0),
        ("attention", 3.0, 1.0, 40.0, 60.0, 400.0, 100.0, 295.0, None),
        ("all", None, None, None, 60.0, 590.0, None, None, None),
    )


def test_notes_say_what_stamps_cost_and_how_their_clock_moves() -> None:
    """After what the columns are, which is told once."""
    other = replace(FOUND, arm="other", cost=None, tick_ns=0)
    how, *notes = stamp_notes([FOUND, other])
    assert how.startswith("blocks, by stamps that the first thread of each takes")
    assert notes == [
        (
            "paper: a build with stamps changes a pass by "
            "+500 ns (+1.47 %, 95 % +400 … +600), slower; "
            "their clock moves by 32 ns or more"
        ),
        "other: what stamps cost was not measured; their clock does not move",
    ]
    assert [*stamp_notes([])] == []


def test_a_report_has_the_table_where_there_are_stamps() -> None:
    """And none where there are none."""
    rows = pl.DataFrame(
        [("paper (stamps)", 0, "qkv", 0, 0, 10, 20, 30)],
        schema=STAMPS,
        orient="row",
    )
    title = "kernels of paper by their blocks, mean of 1 reading"
    run = switched.run()
    assert title not in {table.title for table in build_report(run).tables}
    report = build_report(replace(run, stamps=rows))
    assert [table.title for table in by_topic(report.tables)[Topic.BLOCKS]] == [title]
