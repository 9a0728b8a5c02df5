"""Whether cuts of a line of kernels are the cuts between layers of one stack."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from layerscope.analyze.cut_lists import core_cuts
from layerscope.analyze.kernel_line import Ints, KernelLine
from layerscope.analyze.segments import Segments, segments
from layerscope.analyze.stack_bounds import AKIN, stacks_of

FEWEST_LAYERS: Final = 4
"""Of a stack that only repetition shows; two where cores of attention do."""

LEAST_COVER: Final = 0.5
"""Share of a line's kernels that its layers must be, where only repetition shows them.
"""

LEAST_BY_CORE: Final = 0.25
"""The same, where cores of attention do: in training, backward passes are no layers."""

_ALIKE: Final = 0.88
"""Likeness of neighbours that only differ in their kind of attention, or by a kernel.
The halves of a layer, attention and MLP, are below."""

_SHARE_ALIKE: Final = 0.4
"""Share of neighbours that must be alike: of three linear layers to one of attention,
half are."""

_SHARE_AGAIN: Final = 0.5
"""Share of segments that another one must equal: long ones are alike by chance."""

_SHARE_COMMON: Final = 0.6
"""Share of segments that the three most common kinds must be, where no core of
attention shows that these are layers."""

_SHORTEST: Final = 0.5
_LONGEST: Final = 4.0
"""Shortest and longest segment, as share of the usual one: others are parts of layers,
or hold much else, where no core of attention shows that they are layers."""

_MOST_IN: Final = 0.7
"""Share of the cores of a line that a stack must have, where there are any."""

_IN_EACH: Final = 0.1
"""Least cores a layer: of eight layers, one of attention is usual."""

_MOST_CORES: Final = 3
"""So many cores that `core_cuts` tells apart a segment may have: linear attention is a
chain of kernels, some of which go unrecognised. With more, it is a step."""


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth of equality
class Trial:
    """Cuts that may each be in another layer, at the same place of it."""

    stacks: tuple[tuple[int, int], ...]
    """First and last cut of each stack, by index; the largest first."""

    segments: Segments

    is_by_core: bool
    """Whether the cores of attention are the cuts."""

    kernels: int
    """In the line."""

    @property
    def layers(self) -> int:
        """Of the largest stack."""
        first, last = self.stacks[0]
        return last - first + 1

    @property
    def length(self) -> float:
        """Kernels in a segment of the largest stack, on average."""
        first, last = self.stacks[0]
        cuts = self.segments.cuts
        return float(cuts[last] - cuts[first]) / (last - first)

    @property
    def irregular(self) -> int:
        """How many segments of the largest stack are like no other."""
        first, last = self.stacks[0]
        return int((self.segments.repeats[self.segments.kinds[first:last]] == 1).sum())

    @property
    def total(self) -> int:
        """Layers of all stacks."""
        return self.layers * len(self.stacks)

    @property
    def cost(self) -> float:
        """How many kernels have to be listed to say what the line is.

        Those of each kind of segment once, and those before the first stack and after
        the last. It is least where segments are what is repeated (the principle of
        minimum description length).
        """
        first = min(first for first, _ in self.stacks)
        last = max(last for _, last in self.stacks)
        kinds = np.unique(self.segments.kinds[first:last])
        inside = self.segments.cuts[last] - self.segments.cuts[first] + self.length
        outside = max(self.kernels - inside, 0.0)
        return float(self.segments.lengths[kinds].sum() + outside)

    @property
    def begin(self) -> int:
        """Where the first layer of the largest stack is cut."""
        return int(self.segments.cuts[self.stacks[0][0]])


def trial(
    line: KernelLine, cuts: Ints, *, is_by_core: bool, several: bool
) -> Trial | None:
    """Look whether `cuts` are one a layer; None where they are not.

    Args:
        line: Any kernels.
        cuts: Increasing indices of it.
        is_by_core: Whether they are the cores of attention.
        several: Whether the line may hold several stacks, one after another, each with
            as many layers. Else it must be filled by one.
    """
    fewest = 2 if is_by_core else FEWEST_LAYERS
    if cuts.size < fewest:
        return None
    split = segments(line.identity, cuts)
    if split is None:
        return None
    stacks = stacks_of(line, split, several=several)
    largest = stacks[0]
    layers = largest[1] - largest[0] + 1
    if several:
        stacks = [each for each in stacks if each[1] - each[0] + 1 == layers]
    else:
        stacks = stacks[:1]
    cover = LEAST_BY_CORE if is_by_core else LEAST_COVER
    if layers < fewest or _inside(cuts, stacks) < cover * len(line):
        return None
    made = Trial(tuple(stacks), split, is_by_core, len(line))
    return made if _is_alike(line, made) else None


def _inside(cuts: Ints, stacks: list[tuple[int, int]]) -> float:
    """Kernels in all stacks; some are before the first cut or after the last one.

    Together these are about as many as a layer has.
    """
    return sum(
        float(cuts[last] - cuts[first]) * (last - first + 1) / (last - first)
        for first, last in stacks
        if last > first
    )


def _is_alike(line: KernelLine, made: Trial) -> bool:
    """Whether segments of the largest stack are those of layers, by their likeness."""
    split = made.segments
    first, last = made.stacks[0]
    if made.length < 2:  # noqa: PLR2004 (a layer of one kernel is any that repeats)
        return False
    likeness = split.likeness()[first : last - 1]
    if made.is_by_core:
        alike = np.median(likeness) if likeness.size else _open_likeness(line, made)
        return bool(alike >= AKIN)
    share = float((likeness >= _ALIKE).mean()) if likeness.size else 0.0
    return share >= _SHARE_ALIKE and _is_even(made) and _has_cores(line, made)


def _is_even(made: Trial) -> bool:
    """Whether most segments come again, and none is much longer or shorter."""
    first, last = made.stacks[0]
    kinds = made.segments.kinds[first:last]
    lengths = made.segments.lengths[kinds]
    usual = np.median(lengths)
    repeats = np.bincount(kinds)
    return bool(
        lengths.min() >= _SHORTEST * usual
        and lengths.max() <= _LONGEST * usual
        and repeats[repeats > 1].sum() >= _SHARE_AGAIN * kinds.size
    )


def _has_cores(line: KernelLine, made: Trial) -> bool:
    """Whether cores are where layers would have them, or repetition says enough."""
    split = made.segments
    cores = core_cuts(line)
    if cores.size < 2:  # noqa: PLR2004 (one tells nothing)
        first, last = made.stacks[0]
        repeats = np.sort(np.bincount(split.kinds[first:last]))[::-1]
        return bool(repeats[:3].sum() >= _SHARE_COMMON * (last - first))
    counts = np.diff(np.searchsorted(cores, split.cuts)).clip(max=_MOST_CORES + 1)
    inside = np.concatenate([counts[begin:end] for begin, end in made.stacks])
    least = max(_MOST_IN * cores.size, _IN_EACH * inside.size)
    is_layered = inside.sum() >= least and not _is_halves(inside)
    return bool(is_layered and np.median(inside) <= _MOST_CORES)


def _is_halves(cores: Ints) -> bool:
    """Whether segments without a core of attention stand alone, as the MLPs of layers.

    Layers of which the core is not recognised follow each other.
    """
    is_bare = cores == 0
    in_a_row = int((is_bare[1:] & is_bare[:-1]).sum())
    return bool(is_bare.any()) and in_a_row * 4 < int(is_bare.sum())


def _open_likeness(line: KernelLine, made: Trial) -> float:
    """How alike the first segment of a stack is to what follows its last cut."""
    cuts = made.segments.cuts
    first, last = made.stacks[0]
    length = int(cuts[first + 1] - cuts[first])
    width = int(line.identity.max()) + 1
    one, other = (
        np.bincount(line.identity[cut : cut + length], minlength=width)
        for cut in (cuts[first], cuts[last])
    )
    return float(2 * np.minimum(one, other).sum() / max(one.sum() + other.sum(), 1))
