import polars as pl
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from layerscope.analyze.median_pass import (
    PICTURED,
    median_passes,
    pictured_kernels,
    whole_replays,
)
from layerscope.analyze.shares import increments, kernel_shares
from layerscope.passes import PASS_KEYS
from layerscope.schema import KERNELS, empty
from tests.analyze.replayed import REPLAYS, Kernel, frame

# Used passes are 1 and 2: they move the frontier from 20 to 40, and from 40 to 50.
REPLAY: list[Kernel] = [
    (-1, "other", 0, 4),
    (0, "attention", 4, 6),
    (0, "moe", 12, 8),
    (1, "attention", 18, 12),  # starts 2 before the previous pass ends
    (1, "moe", 33, 7),
    (1, "moe", 34, 4),  # inside the one before
    (2, "attention", 41, 9),
    (3, "attention", 52, 10),
]
PLACES = ("pass_index", "node", "replay_start_ns", "start_ns", "end_ns")
PARTS = ("gap_ns", "hidden_ns", "place", "increment_ns")


def chain(*increments_ns: int) -> list[Kernel]:
    """A replay of one kernel a pass, one after the other without gaps."""
    ends = [sum(increments_ns[: index + 1]) for index in range(len(increments_ns))]
    return [
        (index, "moe", end - duration, duration)
        for index, (end, duration) in enumerate(zip(ends, increments_ns, strict=True))
    ]


def chosen(*replays: list[Kernel]) -> list[tuple[int, int, int]]:
    """Replay, pass and increment of the median pass."""
    found = median_passes(frame(*replays))
    return found.select("replay", "pass_index", "increment_ns").rows()


def test_the_median_pass_and_its_neighbours() -> None:
    """Starts count from the frontier before the median pass; parts are the sweep's."""
    found = pictured_kernels(frame(REPLAY)).select(*PLACES, *PARTS)
    rows = [  # the lower median of 20 and 10 is 10: pass 2
        (1, 3, 18, -22, -10, 0, 2, -1, 20),
        (1, 4, 33, -7, 0, 3, 0, -1, 20),
        (1, 5, 34, -6, -2, 0, 4, -1, 20),
        (2, 6, 41, 1, 10, 1, 0, 0, 10),
        (3, 7, 52, 12, 22, 2, 0, 1, 12),
    ]
    schema = {name: PICTURED[name] for name in (*PLACES, *PARTS)}
    assert_frame_equal(found, pl.DataFrame(rows, schema=schema, orient="row"))


def test_the_median_pass_alone() -> None:
    """Without neighbours only the rows of the median pass are left, whole."""
    expected = {name: [None] for name in PICTURED} | {
        "arm": ["a"],
        "experiment": ["captured"],
        "capture": [0],
        "round": [0],
        "replay": [0],
        "pass_index": [2],
        "node": [6],
        "kind": ["kernel"],
        "name": ["kernel"],
        "region": ["attention"],
        "stream": [0],
        "duration_ns": [9],
        "replay_start_ns": [41],
        "start_ns": [1],
        "end_ns": [10],
        "gap_ns": [1],
        "hidden_ns": [0],
        "place": [0],
        "increment_ns": [10],
    }
    found = pictured_kernels(frame(REPLAY), around=0)
    assert_frame_equal(found, pl.DataFrame(expected, schema=PICTURED))


def test_more_neighbours_end_where_the_replay_ends() -> None:
    """What comes before the first pass is never pictured."""
    found = pictured_kernels(frame(REPLAY), around=9)
    assert found["place"].to_list() == [-2, -2, -1, -1, -1, 0, 1]


def test_all_used_passes_start_at_their_own_start() -> None:
    """Each used pass of each replay starts from 0; places count from the first used."""
    found = pictured_kernels(frame(REPLAY, chain(5, 6, 7)), around=None)
    rows = [
        (1, 3, 18, -2, 10, 0, 2, 0, 20),
        (1, 4, 33, 13, 20, 3, 0, 0, 20),
        (1, 5, 34, 14, 18, 0, 4, 0, 20),
        (2, 6, 41, 1, 10, 1, 0, 1, 10),
        (1, 1, 5, 0, 6, 0, 0, 0, 6),
    ]
    schema = {name: PICTURED[name] for name in (*PLACES, *PARTS)}
    expected = pl.DataFrame(rows, schema=schema, orient="row")
    assert_frame_equal(found.select(*PLACES, *PARTS), expected)


def test_whole_replays() -> None:
    """Nothing is left out; starts are the replay's, and parts are the sweep's."""
    found = whole_replays(frame(REPLAY)).select(*PLACES, *PARTS)
    rows = [
        (-1, 0, 0, 0, 4, 0, 0, -2, 4),
        (0, 1, 4, 4, 10, 0, 0, -1, 16),
        (0, 2, 12, 12, 20, 2, 0, -1, 16),
        (1, 3, 18, 18, 30, 0, 2, 0, 20),
        (1, 4, 33, 33, 40, 3, 0, 0, 20),
        (1, 5, 34, 34, 38, 0, 4, 0, 20),
        (2, 6, 41, 41, 50, 1, 0, 1, 10),
        (3, 7, 52, 52, 62, 2, 0, 2, 12),
    ]
    schema = {name: PICTURED[name] for name in (*PLACES, *PARTS)}
    assert_frame_equal(found, pl.DataFrame(rows, schema=schema, orient="row"))


def test_median_of_an_odd_number() -> None:
    """The middle increment of all replays counts, not of one."""
    assert chosen(chain(1, 9, 1), chain(1, 7, 8, 1)) == [(1, 2, 8)]


def test_of_an_even_number_the_lower_median_counts() -> None:
    """The median is the increment of a pass, never a mean of two."""
    assert chosen(chain(1, 30, 10, 20, 40, 1)) == [(0, 3, 20)]


def test_of_equal_increments_the_earliest_pass_counts() -> None:
    """Which pass is pictured does not depend on chance."""
    assert chosen(chain(1, 9, 5, 1), chain(1, 5, 5, 2, 1)) == [(0, 2, 5)]


def test_every_arm_and_experiment_has_its_own_median() -> None:
    """Arms and twins are told apart, and sorted."""
    one = frame(REPLAY)
    other = frame(chain(1, 2, 3), arm="b")
    kernels = pl.concat([other, one.with_columns(experiment=pl.lit("serial")), one])
    found = pictured_kernels(kernels, around=0)
    assert found.select("arm", "experiment", "increment_ns").rows() == [
        ("a", "captured", 10),
        ("a", "serial", 10),
        ("b", "captured", 2),
    ]


def test_nothing_to_picture() -> None:
    """No kernels, or replays without a used pass, give an empty frame."""
    nothing = empty(PICTURED)
    assert_frame_equal(pictured_kernels(empty(KERNELS)), nothing)
    assert_frame_equal(pictured_kernels(frame(chain(1, 2))), nothing)
    assert_frame_equal(pictured_kernels(frame(chain(1, 2)), around=None), nothing)


@given(REPLAYS)
def test_pictures_show_what_shares_count(replays: list[list[Kernel]]) -> None:
    """Of all used passes, gaps, hidden times and increments are those of `shares`."""
    kernels = frame(*replays)
    found = pictured_kernels(kernels, around=None)
    counted = kernel_shares(kernels)
    expected = counted.select(
        *PASS_KEYS,
        "node",
        "gap_ns",
        hidden_ns=pl.col("duration_ns") - pl.col("exclusive_ns"),
    )
    assert_frame_equal(found.select(expected.columns), expected, check_row_order=False)
    passes = found.select(*PASS_KEYS, "increment_ns").unique().sort(PASS_KEYS)
    assert_frame_equal(passes, increments(kernels))


@given(REPLAYS, st.integers(0, 3))
def test_true_distances_are_kept(replays: list[list[Kernel]], around: int) -> None:
    """Starts of neighbours differ by what they differ in the replay."""
    found = pictured_kernels(frame(*replays), around=around)
    assert (found["replay_start_ns"] - found["start_ns"]).n_unique() <= 1
    assert found["end_ns"].equals(found["start_ns"] + found["duration_ns"])
    assert found["place"].abs().max() in {None, *range(around + 1)}
