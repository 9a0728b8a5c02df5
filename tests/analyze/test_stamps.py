"""Kernels of a pass by what their blocks noted, worked out by hand.

``qkv`` has two blocks, the second of which begins late; ``attention`` has three, one of
which leaves at once, and begins 40 ns before ``qkv`` has ended.
"""

from collections.abc import Sequence
from dataclasses import replace

import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.analyze.bootstrap import Estimate
from layerscope.analyze.stamps import stamped_kernels, stamped_passes
from layerscope.analyze.verdicts import Comparison, Verdict
from layerscope.experiment import Experiment
from layerscope.schema import STAMPS
from tests import switched

ARM = "paper (stamps)"
NONE = (205, None, None, None)
QKV = [(0, 50, 100, 200), (30, 60, 120, 240)]
ATTENTION = [(200, 300, 310, 700), (210, 310, 320, 500), NONE]


def stamps(reading: int, **roles: Sequence[tuple[int | None, ...]]) -> pl.DataFrame:
    """What blocks noted in one reading: begun, waited, triggered and ended."""
    rows = [
        (ARM, reading, role, block, *times)
        for role, blocks in roles.items()
        for block, times in enumerate(blocks)
    ]
    return pl.DataFrame(rows, schema=STAMPS, orient="row")


def test_hand_over_and_work_of_each_kernel() -> None:
    """Kernels are in the order in which their waits end, however they are listed."""
    found = stamped_kernels(stamps(0, attention=ATTENTION, qkv=QKV))
    assert_frame_equal(
        found,
        pl.DataFrame(
            {
                "arm": [ARM, ARM],
                "reading": [0, 0],
                "role": ["qkv", "attention"],
                "blocks": [2, 3],
                "empty_blocks": [0, 1],
                "early_ns": [None, 240 - 200],
                "handover_ns": [None, 300 - 240],
                "work_ns": [240 - 50, 700 - 300],
                "block_waits_ns": [40.0, 100.0],  # of 50 and 30; of 100 and 100
                "block_works_ns": [165.0, 295.0],  # of 150 and 180; of 400 and 190
                "triggers_ns": [240 - 120, 700 - 320],
            }
        ),
    )


def test_a_kernel_that_never_waits_works_from_its_begin() -> None:
    """As one that nothing comes before."""
    found = stamped_kernels(stamps(0, norm=[(0, None, None, 90)]))
    row = found.row(0, named=True)
    assert (row["work_ns"], row["block_waits_ns"], row["triggers_ns"]) == (
        90,
        0.0,
        None,
    )


def test_a_kernel_of_which_no_block_noted_anything_is_left_out() -> None:
    """Its time is in the hand-over to the next one."""
    found = stamped_kernels(stamps(0, qkv=QKV, rope=[NONE], attention=ATTENTION))
    assert found["role"].to_list() == ["qkv", "attention"]


block_times = st.lists(st.integers(0, 10_000), min_size=4, max_size=4).map(sorted)


def test_kernels_that_overlap_share_the_time_by_the_frontier() -> None:
    """What ends behind another has no work of its own; what goes on has the rest.

    ``side`` never waits, and ends while ``qkv`` works.
    """
    found = stamped_kernels(
        stamps(
            0,
            qkv=[(0, 10, None, 300)],
            side=[(50, None, None, 200)],
            down=[(60, 250, None, 450)],
        )
    )
    assert found.select("role", "early_ns", "handover_ns", "work_ns").rows() == [
        ("qkv", None, None, 290),
        ("side", 250, 0, 0),
        ("down", 240, 0, 150),
    ]


@given(st.lists(st.lists(block_times, min_size=1, max_size=3), min_size=1, max_size=5))
def test_both_add_up_to_the_pass(kernels: list[list[list[int]]]) -> None:
    """From the first end of a wait to the last end of all, in whole ns."""
    roles = {
        f"k{number}": [(b, w, t, e) for b, w, t, e in blocks]
        for number, blocks in enumerate(kernels)
    }
    found = stamped_kernels(stamps(0, **roles))
    total = found.select(pl.sum_horizontal(pl.sum("handover_ns", "work_ns"))).item()
    blocks = [block for each in kernels for block in each]
    assert total == max(block[3] for block in blocks) - min(b[1] for b in blocks)


def test_an_arm_has_the_means_of_its_readings_and_what_stamps_cost() -> None:
    """The arm with stamps is 500 ns slower in every round of 34,000."""
    slower = switched.graph(ARM, Experiment(), 34_500)
    later = [(0, 70, 100, 200), (30, 80, 120, 240)]  # waits 20 ns longer
    run = switched.run()
    run = replace(
        run,
        samples=pl.concat([run.samples, slower]),
        stamps=pl.concat([stamps(0, qkv=QKV), stamps(1, qkv=later)]),
    )
    (found,) = stamped_passes(run, 10.0)
    assert (found.arm, found.readings, found.tick_ns) == ("paper", 2, 10)
    assert found.kernels.select("role", "work_ns", "block_waits_ns").rows() == [
        ("qkv", 180.0, 50.0)
    ]
    assert found.cost == Comparison(
        Estimate(500.0, 500.0, 500.0, 6, 6.0), 500 / 34_000, Verdict.SLOWER, ""
    )


def test_without_stamps_there_is_nothing_to_tell() -> None:
    """And no cost of an arm with stamps that was not timed."""
    run = switched.run()
    assert stamped_passes(run, 10.0) == ()
    (found,) = stamped_passes(replace(run, stamps=stamps(0, qkv=QKV)), 10.0)
    assert found.cost is None
