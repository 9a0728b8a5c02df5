"""Segments between cuts."""

import numpy as np

from layerscope.analyze.segments import Segments, segments
from tests.analyze.planted import line


def split(names: str, at: str) -> Segments:
    """The letters, cut at each `at`."""
    identity = line(names).identity
    cuts = np.flatnonzero(np.array(list(names)) == at).astype(np.int64)
    found = segments(identity, cuts)
    assert found is not None
    return found


def test_kinds_do_not_depend_on_order() -> None:
    """Segments of the same kernels are of one kind, in any order."""
    found = split("abcacbabba", "a")
    assert found.kinds[0] == found.kinds[1] != found.kinds[2]
    assert sorted(found.repeats.tolist()) == [1, 2]
    assert found.lengths.tolist() == [3, 3]


def test_likeness() -> None:
    """Twice what two have in common, over all that both have."""
    assert split("abcabcabda", "a").likeness().tolist() == [1.0, 2 * 2 / 6]


def test_most_common_kinds_come_first() -> None:
    """Those with most kernels in all."""
    found = split("abcabcabcadddda", "a")
    assert found.common.tolist() == [found.kinds[0], found.kinds[3]]


def test_too_many_kinds() -> None:
    """Where nearly all segments differ, nothing is told of them."""
    names = np.arange(2_000, dtype=np.int64)
    names[::2] = 0
    assert segments(names, np.arange(0, 2_000, 2)) is None


def test_holds_more() -> None:
    """A rare segment holds a whole common one and much else."""
    found = split("abcdabcdabcdabcdefghabcda", "a")
    flags = found.holds_more(4, 3)[found.kinds]
    assert flags.tolist() == [False, False, False, True, False]
