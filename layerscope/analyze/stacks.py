"""Where the repeated layers of a model are in a line of kernels, without markers."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from layerscope.analyze.cut_lists import core_cuts, phrases, token_cuts
from layerscope.analyze.kernel_line import Ints, KernelLine
from layerscope.analyze.layer_edges import layer_bounds
from layerscope.analyze.stack_trials import FEWEST_LAYERS, Trial, trial

_CUTS_PER_COUNT: Final = 8  # kernels that are equally often there mostly cut the same
_PHRASES: Final = (2, 3, 4, 6, 8)
_TELLING: Final = 3  # a phrase of so many that comes again is more than chance
_NEIGHBOURS: Final = 2
"""What is once in each layer may be so often more in a step, or in fewer layers."""

_VOTES: Final = 2
_SPLIT: Final = 1.5  # layers within a layer, on average, from which on it holds several
_TOLERANCE: Final = 0.05  # what kernels outside of layers are is not known exactly


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth of equality
class Stack:
    """Layers one after another."""

    starts: Ints
    """Where in the line each layer begins."""

    end: int
    """Where the last one ends."""


def find_stacks(line: KernelLine, *, several: bool = False) -> list[Stack]:
    """Find the layers in a line; none where nothing shows that there are any.

    Every kernel that is once in each layer cuts the line into as many segments as there
    are layers, and these are alike. So what cuts it into alike segments is looked for
    (see `stack_trials`): cores of attention, single kernels, and phrases of a few. Of
    all that does, the finest is right, as only a loop within a layer is finer still,
    and the last turn of that is not like others.

    Args:
        line: The kernels of a step, or of a whole device.
        several: Whether it may hold several stacks of equally many layers.

    Returns:
        The stacks in order; at most one unless `several`.
    """
    best = _best_trial(line, several=several)
    if best is None:
        return []
    cuts = best.segments.cuts
    found: list[Stack] = []
    for first, last in sorted(best.stacks):
        low = int(cuts[first - 1]) + 1 if first else 0
        low = max(low, found[-1].end) if found else low
        high = int(cuts[last + 1]) if last + 1 < cuts.size else len(line)
        found.append(Stack(*layer_bounds(line, cuts[first : last + 1], low, high)))
    return found


def _best_trial(line: KernelLine, *, several: bool) -> Trial | None:
    if len(line) < FEWEST_LAYERS:
        return None
    by_core = trial(line, core_cuts(line), is_by_core=True, several=several)
    trials = [by_core] if by_core else []
    lists = token_cuts(line.identity, _CUTS_PER_COUNT, FEWEST_LAYERS)
    trials += _accepted(line, lists, several=several)
    most = max((each.total for each in trials), default=FEWEST_LAYERS)
    if not trials or _repeats_within(line, trials, most):
        for length in _PHRASES:
            if len(line) > length:
                words = phrases(line.identity, length)
                lists = token_cuts(words, _CUTS_PER_COUNT, most)
                trials += _accepted(line, lists, several=several)
    return _chosen(trials, by_core)


def _accepted(line: KernelLine, lists: list[Ints], *, several: bool) -> list[Trial]:
    tried = (trial(line, cuts, is_by_core=False, several=several) for cuts in lists)
    return [each for each in tried if each is not None]


def _repeats_within(line: KernelLine, trials: list[Trial], layers: int) -> bool:
    """Whether the layers that were found may be groups of smaller ones."""
    finest = next(each for each in trials if each.total == layers)
    first = finest.stacks[0][0]
    begin, end = finest.segments.cuts[first : first + 2]
    if end - begin <= _TELLING:
        return False
    words = phrases(line.identity[begin:end], _TELLING)
    return np.unique(words).size < words.size


def _chosen(trials: list[Trial], by_core: Trial | None) -> Trial | None:
    """The trial that shows the finest layers, of those that list fewest kernels."""
    best = [_cheapest(group) for group in _groups(trials, by_core)]
    if by_core is not None:
        # finer layers lack cores that were not recognised: most are then split
        best = [
            each
            for each in best
            if _is_as(each, by_core) or each.total >= _SPLIT * by_core.total
        ]
    fit = [each for each in best if _is_as(each, by_core) or _is_cheap(each, best)]
    if not fit:
        return None
    layers = max(each.total for each in fit)
    same = [each for each in trials if each.total == layers]
    return min(same, key=lambda each: (each.irregular, each.begin))


def _is_as(each: Trial, by_core: Trial | None) -> bool:
    return by_core is not None and each.total == by_core.total


def _is_cheap(each: Trial, trials: list[Trial]) -> bool:
    """Whether none lists much fewer kernels.

    Where layers come in pairs, a single one at the end is taken for a pair.
    """
    return all(
        each.cost
        <= other.cost * (1 + _TOLERANCE)
        + (other.length if each.total >= _SPLIT * other.total else 0)
        for other in trials
    )


def _groups(trials: list[Trial], by_core: Trial | None) -> list[list[Trial]]:
    """Trials that nearly agree on the number of layers, and are not alone in that.

    What is once in each layer may be before or after them, too, or not in the first.
    """
    votes = Counter(each.total for each in trials)
    groups: list[list[Trial]] = []
    highest = 0
    for total in sorted(votes):
        same = [each for each in trials if each.total == total]
        stacks = max(len(each.stacks) for each in same)
        if not groups or total > highest + _NEIGHBOURS * stacks:
            groups.append([])
        highest = total
        if len(same) >= _VOTES or _is_as(same[0], by_core):
            groups[-1] += same
    return [group for group in groups if group]


def _cheapest(group: list[Trial]) -> Trial:
    """That which says what cores of attention do, or which lists fewest kernels.

    Of those that list about as few, that with most layers.
    """
    by_core = [each for each in group if each.is_by_core]
    if by_core:
        return by_core[0]
    most = min(each.cost for each in group) * (1 + _TOLERANCE)
    return max(
        (each for each in group if each.cost <= most),
        key=lambda each: (each.total, -each.cost),
    )
