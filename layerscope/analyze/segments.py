"""What lies between the cuts of a line of kernels, and how much of it is alike."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from layerscope.analyze.kernel_line import Flags, Ints

MOST_KINDS: Final = 512
"""A cut that leaves more different segments than this cuts no layers."""

_MOST_COUNTS: Final = 1 << 20  # numbers in `Segments.counts`; a bound on memory
_COMMON: Final = 8  # so many of the most common kinds are compared with all others

_LONG: Final = 2.0
_MISSING: Final = 0.2

_SEED: Final = 20_240_229  # any fixed number: sums of hashes must not change


@dataclass(frozen=True, slots=True, eq=False)  # arrays have no single truth of equality
class Segments:
    """The segments from each cut to the next, by kind.

    Two segments are of one kind where they hold the same kernels equally often, in any
    order: branches that run at the same time are recorded in an order that changes.
    """

    cuts: Ints
    """Where segments begin, and the last one ends; at least two."""

    kinds: Ints
    """Which kind each segment is, from 0."""

    counts: Ints
    """(kinds, identities): how often each kind holds each kernel."""

    repeats: Ints
    """How many segments are of each kind."""

    common: Ints
    """The most common kinds, those with most kernels in all first."""

    @property
    def lengths(self) -> Ints:
        """Kernels in a segment of each kind."""
        lengths: Ints = self.counts.sum(axis=1)
        return lengths

    def likeness(self) -> npt.NDArray[np.float64]:
        """How alike each segment and the next are: 1 where they are of one kind.

        Twice the number of kernels that both hold, over that of all (Sørensen, Dice).
        """
        pairs, which = np.unique(
            np.stack((self.kinds[:-1], self.kinds[1:])), axis=1, return_inverse=True
        )
        shared = np.minimum(self.counts[pairs[0]], self.counts[pairs[1]]).sum(axis=1)
        lengths = self.lengths
        alike: npt.NDArray[np.float64] = (
            2 * shared / (lengths[pairs[0]] + lengths[pairs[1]])
        )
        return alike[which.ravel()]

    def holds_more(self, least: int, strange: int) -> Flags:
        """Which kinds hold a segment of a far more common kind, and much else.

        They are what lies between two stacks of layers: the end of a layer, all that
        comes after it and before the next stack, and the begin of a layer. And they are
        the last of several turns of a loop within a layer, together with what follows.

        Args:
            least: What is more must be at least so many kernels, and
            strange: hold so many that the common kind has none of.
        """
        lengths = self.lengths
        found = np.zeros(lengths.size, dtype=np.bool_)
        for kind in self.common:
            shared = np.minimum(self.counts, self.counts[kind]).sum(axis=1)
            unlike = self.counts[:, self.counts[kind] == 0].sum(axis=1)
            # the longer it is, the less the ends of a stack matter
            is_long = lengths >= _LONG * lengths[kind]
            missing = np.where(is_long, _MISSING, 0.0)
            is_whole = shared >= (1 - missing) * lengths[kind]
            is_rarer = 2 * self.repeats <= self.repeats[kind]
            is_more = (lengths - shared >= least) & (unlike >= strange)
            found |= is_whole & is_rarer & is_more
        return found


def segments(identity: Ints, cuts: Ints) -> Segments | None:
    """Split a line at `cuts`; None where too many kinds come out."""
    width = int(identity.max()) + 1
    random = np.random.default_rng(_SEED)
    hashes = random.integers(0, 2**63, size=width, dtype=np.uint64)
    inside = hashes[identity[cuts[0] : cuts[-1]]]
    sums = np.add.reduceat(inside, cuts[:-1] - cuts[0])
    _, first, kinds, repeats = np.unique(
        sums, return_index=True, return_inverse=True, return_counts=True
    )
    if first.size > MOST_KINDS or first.size * width > _MOST_COUNTS:
        return None
    counts = np.stack(
        [
            np.bincount(identity[cuts[index] : cuts[index + 1]], minlength=width)
            for index in first
        ]
    )
    weight = repeats * counts.sum(axis=1)
    common = np.argsort(-weight, kind="stable")[:_COMMON]
    return Segments(cuts, kinds, counts, repeats, common)
