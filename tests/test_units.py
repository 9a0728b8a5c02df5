"""Numbers as readers see them."""

import math

import pytest

from layerscope import units


@pytest.mark.parametrize(
    ("value_ns", "text"),
    [
        (0, "0 ns"),
        (1, "1 ns"),
        (999, "999 ns"),
        (1_000, "1.000 µs"),
        (38_123, "38.12 µs"),
        (999_940, "999.9 µs"),
        (999_960, "1.000 ms"),
        (1_234_500, "1.234 ms"),
        (2_500_000_000, "2.500 s"),
        (123_456_000_000_000, "123,456 s"),
        (-14_200, "−14.20 µs"),
        (math.nan, "–"),
    ],
)
def test_times_have_four_digits_and_the_largest_fitting_unit(
    value_ns: float, text: str
) -> None:
    """A time shows four digits in the largest unit it fills; NaN is a dash."""
    assert units.format_ns(value_ns) == text


def test_a_signed_time_has_its_sign_unless_it_is_zero() -> None:
    """Plus and minus are shown on request; what rounds to zero has neither."""
    assert units.format_ns(14_200, signed=True) == "+14.20 µs"
    assert units.format_ns(-0.2, signed=True) == "0 ns"


@pytest.mark.parametrize(
    ("values_ns", "scale"),
    [
        ((-14_200, -14_600, -13_800), units.TimeScale("µs", 1_000, 1)),
        ((9, -12, math.inf), units.TimeScale("ns", 1, 1)),
        ((math.nan, math.nan, math.nan), units.TimeScale("ns", 1, 0)),
        ((-165_012, -165_100, -164_924), units.TimeScale("µs", 1_000, 2)),
        ((-165_012, -165_112, -164_912), units.TimeScale("µs", 1_000, 1)),
        ((-165_012, -165_012.1, -165_011.9), units.TimeScale("µs", 1_000, 3)),
        ((-165_012, -165_012, -165_012), units.TimeScale("µs", 1_000, 0)),
        ((2_000_000, 1_999_700, 2_000_300), units.TimeScale("ms", 1_000_000, 4)),
    ],
)
def test_an_estimate_and_its_parts_share_a_scale(
    values_ns: tuple[float, float, float], scale: units.TimeScale
) -> None:
    """Three digits of the largest finite value, and more where the interval needs them.

    None is below a nanosecond for the interval's sake.
    """
    assert units.estimate_scale(*values_ns) == scale


def test_times_of_a_table_are_microseconds() -> None:
    """Times of one table share a unit and decimals, so that columns line up."""
    scale = units.time_scale([38_123, -4, math.inf])
    assert scale == units.TimeScale("µs", 1_000, 2)
    assert scale.format(38_123) == "38.12"
    assert scale.format(-4, signed=True) == "0.00"
    assert scale.format(-6_000) == "−6.00"


def test_times_of_a_slow_table_are_milliseconds() -> None:
    """One time of a millisecond makes the whole table use milliseconds."""
    scale = units.time_scale([1_000_000, 20])
    assert scale == units.TimeScale("ms", 1_000_000, 3)
    assert scale.format(1_234_567) == "1.235"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.000 kB"),
        (442_123_000, "442.1 MB"),
        (17_340_000_000, "17.34 GB"),
    ],
)
def test_sizes_use_decimal_units(value: float, text: str) -> None:
    """Sizes are divided by powers of 1000, as bandwidths are."""
    assert units.format_bytes(value) == text


@pytest.mark.parametrize(
    ("fraction", "text"),
    [(-0.29, "−29.0 %"), (0.0031, "+0.31 %"), (0.1, "+10.0 %"), (0, "0.00 %")],
)
def test_percentages_keep_a_second_decimal_below_ten(
    fraction: float, text: str
) -> None:
    """Small percentages, such as a noise floor, keep two decimals."""
    assert units.format_percent(fraction, signed=True) == text


def test_an_estimate_names_change_share_and_interval() -> None:
    """The three numbers of a change share one unit and one number of decimals."""
    text = units.format_estimate(-14_200, -14_600, -13_800, -0.29)
    assert text == "−14.2 µs (−29.0 %, 95 % −14.6 … −13.8)"


def test_a_small_estimate_keeps_three_digits() -> None:
    """A change below a microsecond is not rounded to nothing."""
    text = units.format_estimate(-140, -160.4, 20, -0.003)
    assert text == "−140 ns (−0.30 %, 95 % −160 … +20)"


def test_an_unknown_interval_is_dashes() -> None:
    """Bounds that are not finite, of too few samples, are dashes and not numbers."""
    text = units.format_estimate(38_120, -math.inf, math.inf, 0.5)
    assert text == "+38.1 µs (+50.0 %, 95 % – … –)"


def test_a_narrow_interval_is_not_rounded_away() -> None:
    """The ends differ from the change wherever they are a nanosecond apart."""
    text = units.format_estimate(-165_012, -165_100, -164_924, -0.29)
    assert text == "−165.01 µs (−29.0 %, 95 % −165.10 … −164.92)"


def test_a_time_stands_before_its_interval() -> None:
    """Four digits, and more where the interval needs them."""
    assert units.format_interval(40_000, 39_900, 40_100) == "40.00 µs (39.90 … 40.10)"
    text = units.format_interval(465_012, 464_924, 465_100)
    assert text == "465.01 µs (464.92 … 465.10)"


def test_counts_separate_thousands() -> None:
    """Kernel counts are read at a glance."""
    assert units.format_count(1205) == "1,205"


def test_things_are_counted_in_the_number_they_have() -> None:
    """One of a thing is not several; none is."""
    assert units.format_things(1, "row") == "1 row"
    assert units.format_things(0, "draft token") == "0 draft tokens"
    assert units.format_things(1_205, "kernel") == "1,205 kernels"


def test_speed_is_bytes_over_time() -> None:
    """4.5 GB in a millisecond are 4.5 TB a second; no time has no speed."""
    assert units.tb_per_s(4_500_000_000, 1_000_000.0) == 4.5
    assert units.tb_per_s(1, 0.0) is None
