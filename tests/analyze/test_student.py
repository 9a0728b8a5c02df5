import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.analyze.student import t_quantile


@pytest.mark.parametrize(
    ("freedom", "level", "expected"),
    [
        (1, 0.95, 12.706),
        (2, 0.95, 4.303),
        (3, 0.95, 3.182),
        (7, 0.95, 2.365),
        (10, 0.95, 2.228),
        (30, 0.95, 2.042),
        (120, 0.95, 1.980),
        (1, 0.99, 63.657),
        (2, 0.975, 6.205),
        (7, 0.99, 3.499),
        (5, 0.50, 0.727),
    ],
)
def test_quantiles_are_those_of_the_tables(
    freedom: int, level: float, expected: float
) -> None:
    """Printed tables of the two-sided quantiles give the same three decimals."""
    assert t_quantile(freedom, level) == pytest.approx(expected, abs=0.0006)


@given(st.floats(0.01, 0.999))
def test_one_degree_is_the_cauchy_distribution(level: float) -> None:
    """The quantile of one degree of freedom is a tangent."""
    assert t_quantile(1, level) == pytest.approx(math.tan(level * math.pi / 2))


@given(st.floats(0.01, 0.999))
def test_two_degrees_have_a_closed_form(level: float) -> None:
    """With two degrees of freedom, the probability of |t| is t / sqrt(2 + t^2)."""
    t = t_quantile(2, level)
    assert t / math.sqrt(2 + t * t) == pytest.approx(level)


@given(st.integers(1, 60), st.floats(0.5, 0.99))
def test_more_freedom_is_less_spread(freedom: int, level: float) -> None:
    """Every degree of freedom brings the quantile nearer to the normal's."""
    assert t_quantile(freedom + 1, level) < t_quantile(freedom, level)
