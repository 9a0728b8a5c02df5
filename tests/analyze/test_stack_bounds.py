"""Where stacks begin and end."""

import numpy as np

from layerscope.analyze.segments import segments
from layerscope.analyze.stack_bounds import stacks_of
from tests.analyze.planted import line


def stacks(names: str, *, several: bool = False) -> list[tuple[int, int]]:
    """Those among the cuts at each letter a, by index."""
    whole = line(names)
    cuts = np.flatnonzero(np.array(list(names)) == "a").astype(np.int64)
    split = segments(whole.identity, cuts)
    assert split is not None
    return stacks_of(whole, split, several=several)


def test_one_stack() -> None:
    """Equal segments are of one stack."""
    assert stacks("xyabcabcabcz") == [(0, 2)]


def test_what_is_between_two_stacks() -> None:
    """A segment that holds a layer and much else parts stacks; the largest is first."""
    names = "abc" * 4 + "uvwxyz" + "abc" * 5 + "uvwxyz"
    assert stacks(names, several=True) == [(4, 8), (0, 3)]


def test_layer_of_a_draft() -> None:
    """A layer after a head, with the same head after it, is of a draft."""
    assert stacks("abc" * 10 + "uvw" + "abc" + "uvw") == [(0, 9)]


def test_rare_kernels_within_the_stack() -> None:
    """What does not come again behind the last layer leads to no draft."""
    assert stacks("abc" * 10 + "uvw" + "abc" + "xyz") == [(0, 10)]


def test_another_model_before() -> None:
    """Segments that are unlike both neighbours are of no stack."""
    assert stacks("abcabcabca" + "stuvwxyz" + "adeadeadea")[0] == (0, 3)
