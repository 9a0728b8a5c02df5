import random

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.analyze.shares import increments, pass_shares, region_table
from layerscope.schema import PASS_SHARES
from tests.analyze.replayed import KEYS, REPLAYS, Kernel, frame

PassRegion = tuple[int, int, str]  # replay, pass, region

REPLAY = ["arm", "experiment", "capture", "round", "replay"]
PASS = [*REPLAY, "pass_index"]

EARLY_START: list[Kernel] = [
    (-1, "other", 0, 4),
    (0, "attention", 4, 6),
    (0, "moe", 12, 8),
    (1, "attention", 18, 12),  # starts 2 before the previous pass ends
    (1, "moe", 33, 7),
    (1, "moe", 34, 4),  # inside the one before
    (1, "other", 40, 0),
    (2, "attention", 41, 9),
]
ALTERNATING: list[Kernel] = [
    (0, "attention", 0, 10),
    (1, "attention", 10, 20),
    (2, "attention", 12, 23),  # between two kernels of pass 1
    (1, "moe", 32, 8),
    (2, "moe", 41, 9),
    (3, "attention", 50, 10),
]


def owned(replays: list[list[Kernel]]) -> dict[PassRegion, int]:
    """Shares of used passes, by asking for every nanosecond which kernel owns it.

    It is the first one, by (start, end, node), that ends later.
    """
    shares: dict[PassRegion, int] = {}
    for replay, kernels in enumerate(replays):
        passes = {kernel[0] for kernel in kernels} - {-1}
        used = passes - {min(passes, default=0), max(passes, default=0)}
        shares |= {(replay, k[0], k[1]): 0 for k in kernels if k[0] in used}
        ordered = sorted(kernels, key=lambda kernel: (kernel[2], kernel[2] + kernel[3]))
        ends = [start + duration for _, _, start, duration in ordered]
        for instant in range(ordered[0][2], max(ends)):
            at = next(i for i, end in enumerate(ends) if end > instant)
            index, region, _, _ = ordered[at]
            if index in used:
                shares[replay, index, region] += 1
    return shares


def test_early_start() -> None:
    """What a kernel does behind the previous pass is hidden, and no pass's share."""
    expected = {
        "region": ["attention", "moe", "other"],
        "kernels": [1, 2, 1],
        "gap_ns": [0, 3, 0],
        "duration_ns": [12, 11, 0],
        "hidden_ns": [2, 4, 0],
        "share_ns": [10, 10, 0],
        "span_ns": [12, 7, 0],
    }
    keys = {name: [value] * 3 for name, value in KEYS.items()}
    keys |= {"replay": [0] * 3, "pass_index": [1] * 3}
    shares = pass_shares(frame(EARLY_START))
    assert_frame_equal(shares, pl.DataFrame(keys | expected, schema=PASS_SHARES))


def test_increment_of_early_start() -> None:
    """A pass's increment is the frontier after it minus that after the one before."""
    expected = [KEYS | {"replay": 0, "pass_index": 1, "increment_ns": 40 - 20}]
    assert_frame_equal(increments(frame(EARLY_START)), pl.DataFrame(expected))


def test_alternating_passes() -> None:
    """Where passes alternate, each owns what its own kernels add to the frontier."""
    found = increments(frame(ALTERNATING)).select("pass_index", "increment_ns").rows()
    assert found == [(1, 20 + 5), (2, 5 + 10)]


def test_two_passes_have_none_to_use() -> None:
    """The first and the last pass are left out, so two leave nothing."""
    kernels = frame([(0, "moe", 0, 5), (1, "moe", 5, 5)])
    assert pass_shares(kernels).is_empty()
    assert increments(kernels).is_empty()


def test_replays_are_kept_apart_by_every_key() -> None:
    """Replays of two arms, experiments and captures do not share a frontier."""
    one = frame(EARLY_START)
    kernels = pl.concat(
        [
            one,
            one.with_columns(arm=pl.lit("b")),
            one.with_columns(experiment=pl.lit("serial")),
            one.with_columns(capture=pl.lit(1, pl.Int64)),
        ]
    )
    assert pass_shares(kernels)["share_ns"].to_list() == [10, 10, 0] * 4
    assert increments(kernels)["increment_ns"].to_list() == [20] * 4


@given(REPLAYS)
def test_every_nanosecond_has_one_owner(replays: list[list[Kernel]]) -> None:
    """Shares are the nanoseconds that each (pass, region) owns, counted one by one."""
    shares = pass_shares(frame(*replays))
    found = shares.select("replay", "pass_index", "region", "share_ns").rows()
    assert {row[:3]: row[3] for row in found} == owned(replays)


@given(REPLAYS)
def test_shares_add_up_to_increments(replays: list[list[Kernel]]) -> None:
    """An increment = sum(gap) + sum(duration) - sum(hidden) = sum(share), exactly."""
    kernels = frame(*replays)
    parts = (
        pass_shares(kernels)
        .group_by(PASS)
        .agg(pl.col("gap_ns", "duration_ns", "hidden_ns", "share_ns").sum())
        .sort(PASS)
    )
    expected = increments(kernels)
    increment_ns = parts["gap_ns"] + parts["duration_ns"] - parts["hidden_ns"]
    assert increment_ns.to_list() == expected["increment_ns"].to_list()
    actual = parts.select(*PASS, increment_ns="share_ns")
    assert_frame_equal(actual, expected)


@given(REPLAYS)
def test_parts_have_bounds(replays: list[list[Kernel]]) -> None:
    """Gap and share are not negative, and hidden is between zero and duration."""
    shares = pass_shares(frame(*replays))
    assert (shares["gap_ns"] >= 0).all()
    assert (shares["share_ns"] >= 0).all()
    assert shares["hidden_ns"].is_between(0, shares["duration_ns"]).all()


@given(st.lists(st.lists(st.integers(0, 15), min_size=1, max_size=4), min_size=3))
def test_passes_in_order_follow_the_frontier(passes: list[list[int]]) -> None:
    """While passes start in order, increments are differences of the latest end."""
    kernels = [
        (index, "moe", 3 * index, duration)
        for index, durations in enumerate(passes)
        for duration in durations
    ]
    latest = [
        max(start + duration for k, _, start, duration in kernels if k <= index)
        for index in range(len(passes))
    ]
    expected = [latest[k] - latest[k - 1] for k in range(1, len(passes) - 1)]
    assert increments(frame(kernels))["increment_ns"].to_list() == expected


@given(REPLAYS, st.randoms(use_true_random=False))
def test_order_of_rows_is_nothing(
    replays: list[list[Kernel]],
    shuffler: random.Random,
) -> None:
    """The rows of the input may come in any order."""
    kernels = frame(*replays)
    places = list(range(kernels.height))
    shuffler.shuffle(places)
    shuffled = kernels[places]
    assert_frame_equal(pass_shares(shuffled), pass_shares(kernels))
    assert_frame_equal(increments(shuffled), increments(kernels))


@given(REPLAYS, st.integers(-(10**12), 10**12), st.integers(-50, 50))
def test_origin_of_time_is_nothing(
    replays: list[list[Kernel]], origin: int, between: int
) -> None:
    """Only absolute times count, and those only relative to each other."""
    kernels = frame(*replays)
    moved = kernels.with_columns(
        pass_start_ns=pl.col("pass_start_ns") + origin - between,
        start_ns=pl.col("start_ns") + between,
    )
    assert_frame_equal(pass_shares(moved), pass_shares(kernels))
    assert_frame_equal(increments(moved), increments(kernels))


def test_region_table() -> None:
    """Means are over all passes, so that they add up; a missing region counts zero."""
    names = ["pass_index", "region", "kernels", "gap_ns", "duration_ns", "hidden_ns"]
    rows = [
        (1, "moe", 2, 3, 11, 4, 10, 7),
        (1, "attention", 1, 0, 12, 2, 10, 12),
        (2, "moe", 4, 0, 20, 0, 20, 21),
    ]
    shares = pl.DataFrame(rows, schema=[*names, "share_ns", "span_ns"], orient="row")
    shares = shares.with_columns(**{k: pl.lit(v) for k, v in KEYS.items()}, replay=0)
    expected = {
        "arm": ["a", "a"],
        "experiment": ["captured", "captured"],
        "region": ["attention", "moe"],
        "passes": [2, 2],
        "kernels_min": [0, 2],
        "kernels_max": [1, 4],
        "kernels": [0.5, 3.0],
        "share_median_ns": [5.0, 15.0],
        "share_mean_ns": [5.0, 15.0],
        "gap_mean_ns": [0.0, 1.5],
        "duration_mean_ns": [6.0, 15.5],
        "hidden_mean_ns": [1.0, 2.0],
        "span_median_ns": [12.0, 14.0],
    }
    shares = shares.select(
        pl.col(name).cast(dtype) for name, dtype in PASS_SHARES.items()
    )
    assert_frame_equal(region_table(shares), pl.DataFrame(expected))


@given(REPLAYS)
def test_mean_shares_add_up_to_the_mean_increment(
    replays: list[list[Kernel]],
) -> None:
    """The mean shares of the table add up to the mean increment."""
    kernels = frame(*replays)
    table, expected = region_table(pass_shares(kernels)), increments(kernels)
    passes = max(expected.height, 1)
    total = sum(expected["increment_ns"].to_list()) / passes
    assert sum(table["share_mean_ns"].to_list()) == pytest.approx(total)
    assert table["passes"].to_list() == [passes] * table.height
