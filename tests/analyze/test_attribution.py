import math

import polars as pl
from polars.testing import assert_frame_equal

from layerscope.analyze.attribution import (
    RECORD_CAUSES,
    Records,
    _added,
    changes,
    records,
)
from layerscope.analyze.causes import Cause
from layerscope.analyze.typical import TypicalPass
from layerscope.run_header import KernelCost
from tests.analyze.timelines import BASE, COSTS, OTHER, Chain, Kernel, arms_run

ATTEND = Kernel("attention", "attend", 5_000, 500, role="attend", blocks=1)
NORM = Kernel("attention", "norm", 1_000, 400, role="norm", blocks=101)
FASTER = Kernel("attention", "attend_2", 4_000, 300, role="attend", blocks=301)

ROUNDS = [(capture, round_) for capture in range(2) for round_ in range(3)]


def both(kernels: pl.DataFrame, experiment: str = "serial") -> tuple[Records, Records]:
    """The records of the two arms."""
    return records(kernels, BASE, experiment), records(kernels, OTHER, experiment)


def cells(base: Chain, other: Chain, *, experiment: str = "serial") -> pl.DataFrame:
    """The `changes` of two arms, without causes that nothing counts for."""
    run = arms_run(base, other)
    sides = both(run.kernels, experiment)
    found = changes(*sides, COSTS if experiment == "serial" else ())
    return found.filter((pl.col("base_ns") != 0) | (pl.col("other_ns") != 0))


def expected(*parts: tuple[str, Cause, float, float]) -> pl.DataFrame:
    """The same parts (region, cause, base, other) in every round."""
    names = ["capture", "round", "region", "cause", "base_ns", "other_ns"]
    rows = [
        (*at, region, cause.value, *values)
        for at in ROUNDS
        for region, cause, *values in sorted(parts)
    ]
    return pl.DataFrame(rows, schema=names, orient="row")


def test_gaps_and_durations_count_for_their_causes() -> None:
    """What the profiler adds by blocks (100, 150 and 200 ns here) is in no gap."""
    found = cells([ATTEND, NORM], [FASTER])
    assert_frame_equal(
        found,
        expected(
            ("attention", Cause.FASTER, 5_000.0, 4_000.0),
            ("attention", Cause.GAPS, 500.0, 300.0),
            ("attention", Cause.ADDED, 1_000.0, 0.0),
            ("attention", Cause.LAUNCHES, 400.0, 0.0),
        ),
    )


def test_what_a_record_costs_beyond_the_gap_is_in_the_kernel() -> None:
    """A gap of 90 ns before a kernel whose record costs 150: none, and 60 ns less."""
    found = cells([ATTEND, NORM._replace(gap_ns=-60)], [ATTEND])
    assert_frame_equal(
        found,
        expected(
            ("attention", Cause.SAME, 5_000.0, 5_000.0),
            ("attention", Cause.GAPS, 500.0, 500.0),
            ("attention", Cause.ADDED, 940.0, 0.0),
        ),
    )


def test_a_gap_before_a_kernel_is_the_mean_of_all_passes() -> None:
    """Of gaps of 0 and 200 ns and a cost of 150, 100 are in the gap."""
    place = {"region": "moe", "ordinal": 0}
    alike = pl.DataFrame([{**place, "gap_ns": 0}, {**place, "gap_ns": 200}])
    grid = dict.fromkeys(("grid_x", "grid_y", "grid_z"), 1)
    typical = TypicalPass(pl.DataFrame([place | grid]), alike, 2, 2)
    cost = KernelCost(blocks=1, added_ns=150.0, low_ns=150.0, high_ns=150.0)
    assert _added(typical, [cost]).rows(named=True) == [
        {**place, "in_gap_ns": 100.0, "in_kernel_ns": 50.0}
    ]


def test_without_costs_gaps_are_as_recorded() -> None:
    """Nothing is subtracted that was not calibrated."""
    run = arms_run([NORM], [FASTER])
    sides = both(run.kernels)
    gaps = changes(*sides).filter(cause=Cause.LAUNCHES.value)
    assert set(gaps.select("base_ns", "other_ns").rows()) == {(550.0, 500.0)}


def test_what_has_no_grid_costs_as_one_block() -> None:
    """A copy writes a record too."""
    run = arms_run([NORM], [NORM])
    nulls = pl.lit(None, pl.Int64)
    kernels = run.kernels.with_columns(grid_x=nulls, grid_y=nulls, grid_z=nulls)
    sides = both(kernels)
    found = changes(*sides, COSTS).filter(pl.col("cause") == Cause.GAPS.value)
    assert set(found["base_ns"]) == {400.0 + 150.0 - 100.0}


def test_overlapping_kernels_count_what_they_add() -> None:
    """In a captured graph, what runs behind another kernel is no time of its own."""
    early = FASTER._replace(early_ns=700, saved_ns=200)
    found = cells([NORM, ATTEND], [NORM, early], experiment="captured")
    assert_frame_equal(
        found,
        expected(
            ("attention", Cause.SAME, 1_000.0, 1_000.0),
            ("attention", Cause.GAPS, 900.0, 400.0),
            ("attention", Cause.FASTER, 5_000.0, 3_800.0),
        ),
    )
    run = arms_run([NORM, ATTEND], [NORM, early])
    other = records(run.kernels, OTHER, "captured")
    assert (other.hidden_ns, other.pass_ns) == (700.0, 5_200.0)


def test_every_round_has_every_cell() -> None:
    """A region that one arm lacks is there with zeros, and so are all causes."""
    run = arms_run([ATTEND], [ATTEND, Kernel("moe", "experts", 9_000)])
    sides = both(run.kernels)
    found = changes(*sides, COSTS)
    assert found.height == len(ROUNDS) * 2 * len(RECORD_CAUSES)
    added = found.filter(region="moe", cause=Cause.ADDED.value)
    assert set(added.select("base_ns", "other_ns").rows()) == {(0.0, 9_000.0)}


def test_rounds_of_one_arm_do_not_count() -> None:
    """A replay that was dropped leaves out the round, and makes no zero."""
    run = arms_run([ATTEND], [FASTER])
    there = pl.struct("arm", "round") != {"arm": OTHER, "round": 1}
    kernels = run.kernels.filter(there)
    sides = both(kernels)
    assert set(changes(*sides)["round"]) == {0, 2}


def test_no_records() -> None:
    """An arm that was not recorded has no passes and no rounds."""
    run = arms_run([ATTEND], [FASTER])
    base, other = (records(run.kernels, arm, "serial") for arm in (BASE, "nobody"))
    assert other.typical.passes == 0
    assert math.isnan(other.pass_ns)
    assert math.isnan(other.hidden_ns)
    assert changes(base, other, COSTS).is_empty()
