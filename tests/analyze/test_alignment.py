"""Lists of kernels beside each other."""

import numpy as np

from layerscope.analyze.alignment import Alignment, align


def compared(pattern: str, text: str, *, is_whole: bool = False) -> Alignment:
    """Those letters, which are the same where they are equal."""
    same = np.array([[one == other for other in text] for one in pattern])
    return align(same.reshape(len(pattern), len(text)), is_whole=is_whole)


def test_equal_beginnings() -> None:
    """They go together as far as they are equal."""
    assert compared("abcx", "abcyz") == Alignment(3, 3, 3, [0, 1, 2])


def test_one_more_in_either() -> None:
    """What only one of them has costs as much as one that both have counts."""
    assert compared("abcdef", "abxcdef") == Alignment(6, 7, 5, [0, 1, 3, 4, 5, 6])
    assert compared("abxcdef", "abcdef") == Alignment(7, 6, 5, [0, 1, -1, 2, 3, 4, 5])


def test_parted_lists_do_not_meet_again() -> None:
    """Behind more than a few kernels of one list nothing is taken up."""
    assert compared("abcdefghijk", "a12345678bcdefghijk") == Alignment(1, 1, 1, [0])


def test_whole_pattern() -> None:
    """On demand all of the pattern is part of it."""
    assert compared("abx", "abc", is_whole=True).pattern == 3
    assert compared("abc", "xxabc", is_whole=True).text == 5


def test_nothing_to_compare() -> None:
    """Empty lists go together nowhere."""
    assert compared("", "abc") == Alignment(0, 0, 0, [])
    assert compared("abc", "") == Alignment(0, 0, 0, [])
