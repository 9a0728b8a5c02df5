import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.analyze.pass_times import incomplete_rounds, linearity, pass_times
from layerscope.schema import SAMPLES

Replay = tuple[str, int, int, int]  # arm, round, passes, duration


def frame(
    *replays: Replay, capture: int = 0, experiment: str = "captured"
) -> pl.DataFrame:
    """`SAMPLES` of the anchor phase."""
    rows = [
        {
            "phase": "anchor",
            "arm": arm,
            "experiment": experiment,
            "capture": capture,
            "round": round_,
            "position": position,
            "passes": passes,
            "step": 0,
            "duration_ns": duration,
        }
        for position, (arm, round_, passes, duration) in enumerate(replays)
    ]
    return pl.DataFrame(rows, schema=SAMPLES)


def times(*rows: tuple[str, int, float]) -> pl.DataFrame:
    """What `pass_times` gives: arm, round and ns of capture 0."""
    return pl.DataFrame(
        [("anchor", arm, "captured", 0, round_, ns) for arm, round_, ns in rows],
        schema=["phase", "arm", "experiment", "capture", "round", "pass_ns"],
        orient="row",
    )


def test_slope_leaves_out_the_launch() -> None:
    """Of several lengths, the slope counts and the constant cost does not."""
    samples = frame(
        ("a", 0, 24, 7_000 + 24 * 50_001),
        ("a", 0, 8, 7_000 + 8 * 50_001),
        ("a", 0, 16, 7_000 + 16 * 50_001),
    )
    assert_frame_equal(pass_times(samples), times(("a", 0, 50_001.0)), check_exact=True)


def test_slope_is_least_squares() -> None:
    """The outer lengths decide; the middle one cannot tilt an even spacing."""
    samples = frame(("a", 0, 8, 800), ("a", 0, 16, 9_999), ("a", 0, 24, 2_432))
    assert_frame_equal(
        pass_times(samples), times(("a", 0, (2_432 - 800) / 16)), check_exact=True
    )


def test_one_length_is_divided() -> None:
    """Of one length, the time is duration over passes."""
    samples = frame(("b", 0, 8, 804), ("a", 0, 8, 1_600))
    assert_frame_equal(pass_times(samples), times(("a", 0, 200.0), ("b", 0, 100.5)))


def test_rounds_that_lack_a_length_are_left_out() -> None:
    """A stopped round is left out for every arm, and listed."""
    whole = [(arm, 0, passes, passes * 10) for arm in "ab" for passes in (8, 16)]
    samples = frame(*whole, ("a", 1, 8, 80), ("a", 1, 16, 160), ("b", 1, 8, 80))
    assert_frame_equal(pass_times(samples), times(("a", 0, 10.0), ("b", 0, 10.0)))
    expected = {"phase": "anchor", "experiment": "captured", "capture": 0, "round": 1}
    assert_frame_equal(incomplete_rounds(samples), pl.DataFrame([expected]))


def test_rounds_that_lack_an_arm_are_left_out() -> None:
    """A round is incomplete too where an arm has no replay at all."""
    samples = frame(("a", 0, 8, 80), ("b", 0, 8, 80), ("b", 1, 8, 80))
    assert_frame_equal(pass_times(samples), times(("a", 0, 10.0), ("b", 0, 10.0)))


def test_experiments_and_captures_have_their_own_arms() -> None:
    """An arm that an experiment or capture does not have makes no round incomplete."""
    samples = pl.concat(
        [
            frame(("a", 0, 8, 80), ("b", 0, 8, 80)),
            frame(("a", 0, 8, 80), capture=1),
            frame(("b", 0, 4, 80), experiment="serial"),
        ]
    )
    assert incomplete_rounds(samples).is_empty()
    assert pass_times(samples).height == 4


def test_no_samples_have_no_times() -> None:
    """An empty frame gives an empty frame with the same columns."""
    assert pass_times(frame()).schema == times(("a", 0, 1.0)).schema
    assert linearity(frame()).is_empty()


def test_linear_replays_deviate_by_nothing() -> None:
    """Durations on a line have no deviation, whatever the spacing of lengths."""
    samples = frame(*(("a", 0, passes, 30 + passes * 7) for passes in (8, 12, 24)))
    assert linearity(samples)["deviation_ns"].to_list() == [0.0]


def test_deviation_of_the_middle_length() -> None:
    """The first half rises by 20 a pass, the whole by 15: short replays cost 5 more."""
    samples = frame(
        *(
            (arm, round_, passes, duration)
            for arm in ("b", "a")
            for round_ in (0, 1)
            for passes, duration in ((24, 240 + 80), (8, 80), (16, 160 + 80))
        )
    )
    expected = {
        "phase": ["anchor"] * 2,
        "arm": ["a", "b"],
        "experiment": ["captured"] * 2,
        "deviation_ns": [5.0] * 2,
        "low_ns": [5.0] * 2,
        "high_ns": [5.0] * 2,
        "rounds": [2] * 2,
    }
    assert_frame_equal(linearity(samples), pl.DataFrame(expected))


@pytest.mark.parametrize("lengths", [(8,), (8, 16)])
def test_two_lengths_are_always_linear(lengths: tuple[int, ...]) -> None:
    """Fewer than three lengths say nothing, so there is no row."""
    assert linearity(frame(*(("a", 0, n, n) for n in lengths))).is_empty()
