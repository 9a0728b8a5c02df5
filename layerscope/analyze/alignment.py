"""Two lists of kernels beside each other, as far as they are alike."""

from typing import Final, NamedTuple

import numpy as np

from layerscope.analyze.kernel_line import Flags, Ints

MOST: Final = 1024
"""Longer lists are compared up to here."""

_DROP: Final = 4
"""So far a score may fall before two lists are taken to have parted: a few kernels may
be in one list only, but not the whole end of a step."""

_NEVER: Final = -(1 << 40)


class Alignment(NamedTuple):
    """How far the beginnings of two lists go together."""

    pattern: int
    """So many of the first are part of it."""

    text: int
    """So many of the second."""

    score: int
    """Kernels that both have, less those that only one has."""

    partners: list[int]
    """For each of `pattern` the place in the second that it stands beside, or -1."""


def align(same: Flags, *, is_whole: bool = False) -> Alignment:
    """Lay the beginnings of two lists beside each other, for the best score.

    Of equal scores the shortest is taken.

    Args:
        same: (pattern, text): which kernels of the two are the same.
        is_whole: Whether all of the pattern has to be part of it.
    """
    rows, width = same.shape
    scores = np.empty((rows + 1, width + 1), dtype=np.int64)
    place = np.arange(width + 1)
    scores[0] = -place
    highest = 0
    for row in range(rows):
        beside = scores[row, :-1] + np.where(same[row], 1, -1)
        best = np.append(scores[row, :1] - 1, np.maximum(beside, scores[row, 1:] - 1))
        # one that only the text has costs 1, however many there are in a row
        best = np.maximum.accumulate(best + place) - place
        if not is_whole:  # far below the best, nothing is taken up again
            highest = max(highest, int(best.max()))
            best[best < highest - _DROP] = _NEVER
        scores[row + 1] = best
    if is_whole:
        pattern, text = rows, int(scores[rows].argmax())
    else:
        pattern, text = divmod(int(scores.argmax()), width + 1)
    score = int(scores[pattern, text])
    return Alignment(pattern, text, score, _partners(same, scores, pattern, text))


def _partners(same: Flags, scores: Ints, pattern: int, text: int) -> list[int]:
    partners = [-1] * pattern
    while pattern > 0 and text > 0:
        score = scores[pattern, text]
        step = 1 if same[pattern - 1, text - 1] else -1
        if score == scores[pattern - 1, text - 1] + step:
            pattern, text = pattern - 1, text - 1
            partners[pattern] = text
        elif score == scores[pattern - 1, text] - 1:
            pattern -= 1
        else:
            text -= 1
    return partners
