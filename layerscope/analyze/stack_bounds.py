"""Where stacks of layers begin and end among the cuts of a line of kernels."""

from itertools import pairwise
from typing import Final

import numpy as np

from layerscope.analyze.kernel_line import Flags, KernelLine
from layerscope.analyze.segments import Segments

AKIN: Final = 0.3
"""Likeness below which neighbours are not of one stack: a dense layer and one of
experts, or layers of attention and of a state space, are above."""

_MUCH: Final = 4
_STRANGE: Final = 5
"""Between two stacks there are at least so many kernels, and so many that layers lack.
"""

_RARE: Final = 0.25  # share of the segments
_FEWEST: Final = 8  # of few segments, none is rare
_DRAFT_STRANGE: Final = 3
"""A segment that leads to a draft has so many kernels that are in few segments."""

_MOST_TAILS: Final = 16  # kinds of segments that the end of a line is compared with


def stacks_of(
    line: KernelLine, split: Segments, *, several: bool
) -> list[tuple[int, int]]:
    """Runs of cuts with only layers between them, that with most kernels first."""
    likeness = split.likeness()
    before = np.append(likeness, likeness[-1:] if likeness.size else 1.0)
    after = np.append(likeness[:1] if likeness.size else 1.0, likeness)
    is_break = split.holds_more(_MUCH, _STRANGE)[split.kinds]
    is_break |= (before < AKIN) & (after < AKIN)
    if likeness.size == 1 and likeness[0] < AKIN:
        is_break[:] = True
    is_draft = _leads_to_draft(line, split)
    if several:
        is_break |= is_draft
    bounds = [-1, *np.flatnonzero(is_break).tolist(), split.kinds.size]
    stacks = [
        _without_drafts(is_draft, begin + 1, end) for begin, end in pairwise(bounds)
    ]
    cuts = split.cuts
    return sorted(stacks, key=lambda each: cuts[each[0]] - cuts[each[1]])


def _without_drafts(is_draft: Flags, first: int, last: int) -> tuple[int, int]:
    """`first` and `last` cut of a stack, less single layers before it or after it.

    Draft models often have one layer of the kind that the model has.
    """
    while last - first > 1 and is_draft[last - 1]:
        last -= 1
    while last - first > 1 and is_draft[first]:
        first += 1
    return first, last


def _leads_to_draft(line: KernelLine, split: Segments) -> Flags:
    """Which segments hold much that is rare, and some of what follows the last layer.

    So does the segment between the model's last layer and the layer of a draft model:
    both have a head, and a choice of tokens.
    """
    with_it = ((split.counts > 0) * split.repeats[:, None]).sum(axis=0)
    is_rare = with_it <= _RARE * split.kinds.size
    is_strange = split.counts[:, is_rare].sum(axis=1) >= _DRAFT_STRANGE
    if split.kinds.size < _FEWEST or not is_strange.any():
        return np.zeros(split.kinds.size, dtype=np.bool_)
    rest = line.identity[split.cuts[-1] :]
    tail = _longest_tail(line, split, ~is_strange)
    after = np.bincount(rest[tail:], minlength=is_rare.size) > 0
    is_strange &= split.counts[:, is_rare & after].sum(axis=1) > 0
    flags: Flags = is_strange[split.kinds]
    return flags


def _longest_tail(line: KernelLine, split: Segments, is_usual: Flags) -> int:
    """How far what follows the last cut is what begins a usual kind of segment."""
    longest = 0
    last = int(split.cuts[-1])
    examples = np.unique(split.kinds, return_index=True)[1][is_usual]
    for index in examples[:_MOST_TAILS]:
        begin, end = split.cuts[index : index + 2]
        size = min(int(end - begin), len(line) - last)
        same = line.identity[begin : begin + size] == line.identity[last : last + size]
        longest = max(longest, size if same.all() else int(same.argmin()))
    return longest
