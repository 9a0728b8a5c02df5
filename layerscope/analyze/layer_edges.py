"""Where the layers of a stack begin and end, once a cut within each is known.

A layer begins with its input norm. The first layer shows which of its norms that is:
what comes before it there is not what comes before it elsewhere. The last one ends with
what the others end with.
"""

from typing import Final

import numpy as np

from layerscope.analyze.alignment import MOST, Alignment, align
from layerscope.analyze.kernel_line import Flags, Ints, KernelLine
from layerscope.analyze.segments import Segments, segments

_LIKE_OTHERS: Final = 0.8  # score a kernel of the end of a layer that is like another
_FINAL: Final = 3  # a head may begin with a product that layers begin with, too
_TELLING: Final = 2
_KINDS: Final = 6  # so many kinds of segments are compared with the first layer


def layer_bounds(line: KernelLine, cuts: Ints, low: int, high: int) -> tuple[Ints, int]:
    """Find the first kernel of each layer, and the end of the last.

    Args:
        line: Any kernels.
        cuts: One kernel of each layer, always at the same place of it.
        low: Before this kernel, nothing belongs to the first layer.
        high: From this kernel on, nothing belongs to the last one.

    Returns:
        Where layers begin, and where the last one ends.
    """
    split = segments(line.identity, cuts)
    if split is None:
        msg = "layer_bounds needs cuts whose segments are of few kinds"
        raise ValueError(msg)
    examples = [int(index) for index in np.unique(split.kinds, return_index=True)[1]]
    examples.sort()
    head, start = _first_head(line, split, examples[:_KINDS], low)
    reference, back = head
    backs = {
        int(split.kinds[index]): _back(line, split, reference, back, index)
        for index in examples
    }
    starts = [start]
    starts += [
        int(cut) - backs[int(kind)]
        for cut, kind in zip(cuts[1:], split.kinds, strict=True)
    ]
    return np.array(starts, dtype=np.int64), _end(line, cuts, starts, examples, high)


def _first_head(
    line: KernelLine, split: Segments, examples: list[int], low: int
) -> tuple[tuple[int, int], int]:
    """How layers begin, as the segment that shows it and the kernels before its cut.

    And where the first layer begins.
    """
    first = int(split.cuts[0])
    before = np.arange(first - 1, max(low, first - MOST) - 1, -1)
    best: tuple[int, Alignment, Ints] | None = None
    for index in examples:
        inner = _reversed(split, index)
        found = align(_same(line, inner, before))
        if best is None or found.score > best[1].score:
            best = index, found, inner
    assert best is not None  # noqa: S101 (two cuts make a segment)
    index, found, inner = best
    back = _input_norm(line, inner[: found.pattern])
    if back is None:
        back = found.pattern
        if found.text == before.size:
            back = _norm_without_begin(line, split, inner, back)
        return (index, back), first - found.text
    partners = [place for place in found.partners[:back] if place >= 0]
    return (index, back), first - 1 - max(partners, default=-1)


def _reversed(split: Segments, index: int) -> Ints:
    """The kernels before a cut, the nearest first, up to the cut before it."""
    begin, end = int(split.cuts[index]), int(split.cuts[index + 1])
    return np.arange(end - 1, max(begin, end - 1 - MOST), -1)


def _same(line: KernelLine, one: Ints, other: Ints) -> Flags:
    """Which kernels are equal; the first norm of a step adds nothing, so any fits."""
    is_norm = line.is_norm & ~line.is_root
    equal = line.identity[one][:, None] == line.identity[other][None, :]
    either: Flags = equal | (is_norm[one][:, None] & is_norm[other][None, :])
    return either


def _input_norm(line: KernelLine, inner: Ints) -> int | None:
    """How many of `inner`, kernels before a cut, begin with the earliest norm there."""
    norms = np.flatnonzero(line.is_norm[inner])
    if not norms.size:
        return None
    back = int(norms[-1])
    if line.is_root[inner[back]]:
        while back + 1 < inner.size and line.is_link[inner[back + 1]]:
            back += 1
    return back + 1


def _norm_without_begin(
    line: KernelLine, split: Segments, inner: Ints, known: int
) -> int:
    """As `_input_norm`, where the line begins within the first layer, after its norm.

    What follows the last layer begins with a norm as well. Where the line ends before
    it, too, the norm is taken that is nearest before the begin.

    Args:
        line: Any kernels.
        split: Its segments.
        inner: Those before a cut, the nearest first.
        known: So many of them are in the first layer.
    """
    forward = inner[::-1]
    is_norm = line.is_norm[forward]
    fed = np.flatnonzero(line.is_feed[forward])
    if fed.size:  # the input norm is the first after the MLP of the layer before
        norms = np.flatnonzero(is_norm[fed[-1] :])
        return inner.size - int(fed[-1] + norms[0]) if norms.size else known
    last = int(split.cuts[-1])
    after = np.arange(last + 1, min(last + 1 + forward.size, len(line)))
    found = align(_same(line, forward, after))
    norms = np.flatnonzero(is_norm[: found.pattern])
    is_end = norms.size and found.pattern - int(norms[-1]) <= _FINAL
    if is_end and found.text < after.size:
        return inner.size - int(norms[-1])
    norms = np.flatnonzero(line.is_norm[inner[known:]])
    return known + int(norms[0]) + 1 if norms.size else known


def _back(
    line: KernelLine, split: Segments, reference: int, back: int, index: int
) -> int:
    """How many kernels before the cut that ends segment `index` a layer begins."""
    if index == reference or not back:
        return back
    pattern = _reversed(split, reference)[:back]
    text = _reversed(split, index)
    found = align(line.identity[pattern][:, None] == line.identity[text][None, :])
    partner = found.partners[back - 1] if found.pattern >= back else -1
    begin = int(pattern[-1])
    if partner >= 0 and line.identity[text[partner]] == line.identity[begin]:
        return partner + 1
    for alike in (line.identity == line.identity[begin], line.is_norm):
        places = np.flatnonzero(alike[text])
        count = int(alike[pattern].sum())
        if alike[begin] and places.size >= count:
            return int(places[count - 1]) + 1
    whole = align(
        line.identity[pattern][:, None] == line.identity[text][None, :], is_whole=True
    )
    return whole.text


def _end(
    line: KernelLine, cuts: Ints, starts: list[int], examples: list[int], high: int
) -> int:
    """Where the last layer ends: where it is most like the end of another one.

    If it is like none, it ends where the final norm begins, which is as other layers
    begin: as often as in a whole layer, that kernel comes before.
    """
    last = int(cuts[-1])
    best: tuple[float, int] | None = None
    for index in reversed(examples):
        tail = np.arange(int(cuts[index]), starts[index + 1])[:MOST]
        rest = np.arange(last, min(high, last + 2 * tail.size + 16))
        found = align(
            line.identity[tail][:, None] == line.identity[rest][None, :], is_whole=True
        )
        score = found.score / max(tail.size, 1)
        if best is None or score > best[0]:
            best = score, last + found.text
    assert best is not None  # noqa: S101 (two cuts make a segment)
    begin = line.identity[starts[1]]
    before = int((line.identity[starts[-1] : last] == begin).sum())
    within = int((line.identity[starts[1] : starts[-1]] == begin).sum())
    if best[0] < _LIKE_OTHERS and len(starts) > _TELLING:
        usual = round(within / (len(starts) - 2))
        places = np.flatnonzero(line.identity[last:high] == begin)
        if 0 <= usual - before < places.size:
            return last + int(places[usual - before])
    return max(best[1], last + 1)
