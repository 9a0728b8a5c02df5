"""Student's t distribution, for whole degrees of freedom."""

import math
from functools import lru_cache
from typing import Final

_HALVINGS: Final = 60  # of an angle below two: more than a float tells apart


@lru_cache
def t_quantile(freedom: int, level: float) -> float:
    """The t that a draw exceeds, on either side of zero, `1 - level` of the time.

    With ``t = sqrt(freedom) * tan(angle)``, the probability is a finite sum over powers
    of the angle's cosine (Abramowitz and Stegun 26.7.3 and 26.7.4), here inverted by
    bisection.

    Args:
        freedom: degrees of freedom, at least 1.
        level: probability of a draw within, such as 0.95.
    """
    low, high = 0.0, math.pi / 2
    for _ in range(_HALVINGS):
        angle = (low + high) / 2
        if _within(angle, freedom) < level:
            low = angle
        else:
            high = angle
    return math.sqrt(freedom) * math.tan(low)


def _within(angle: float, freedom: int) -> float:
    sine, cosine = math.sin(angle), math.cos(angle)
    first = freedom % 2
    term, total = cosine**first, 0.0
    for power in range(first, freedom - 1, 2):
        total += term
        term *= cosine**2 * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if first else sine * total
