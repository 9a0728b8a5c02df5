"""Several causes at once: arms to which one after another is added."""

from collections.abc import Callable, Mapping
from typing import Final

from layerscope.analyze.causes import FUSION, Cause
from layerscope.regions import Region
from layerscope.selftest.cases import (
    BASE,
    ROLES,
    Chain,
    Launch,
    merged,
    pairs,
    slow_pair,
    with_change,
)

WORK: Final = "work"
FUSION_ADDED: Final = "fusion"
OVERLAP_ADDED: Final = "overlap"

CAUSES_ADDED: Final[Mapping[str, frozenset[Cause]]] = {
    WORK: frozenset({Cause.FASTER}),
    FUSION_ADDED: frozenset(FUSION),
    OVERLAP_ADDED: frozenset({Cause.OVERLAP}),
}
"""What is added to the arms of `MIXED`, in order, and the lines it must land on."""

_READS: Final = tuple(Launch(region=Region.ATTENTION, role=role) for role in ROLES)


def _arm(reads: Chain, fused: Callable[[str], Chain], slow: Chain) -> Chain:
    """A pass: what is worked less, merged, and run in parallel, each in its regions."""
    return (*reads, *fused(Region.O_PROJ_ALL_REDUCE), *slow, *fused(Region.OTHER))


_SLOW: Final = slow_pair(Region.MOE)
_BESIDE: Final = with_change(_SLOW, 1, beside=True)

MIXED: Final[Mapping[str, Chain]] = {
    BASE: _arm(with_change(_READS, 0, extra=3), pairs, _SLOW),
    WORK: _arm(_READS, pairs, _SLOW),
    FUSION_ADDED: _arm(_READS, merged, _SLOW),
    OVERLAP_ADDED: _arm(_READS, merged, _BESIDE),
}
"""Arms of one study, each with one thing more than the one before it: less work in a
kernel, kernels merged in other regions, and two kernels of one more as branches.

Not an early start of all: on an H200, plain kernels followed each other 0.35 µs later
than programmatic ones do in a serial twin, which is a change besides, and no overlap.
"""

MIXTURES: Final[tuple[tuple[str, ...], ...]] = (
    (WORK, FUSION_ADDED),
    (FUSION_ADDED, OVERLAP_ADDED),
    (WORK, FUSION_ADDED, OVERLAP_ADDED),
)
"""What was added from one arm of `MIXED` to another, by the names of the latter."""


def arm_before(added: str) -> str:
    """The arm of `MIXED` to which `added` was added."""
    names = [*MIXED]
    return names[names.index(added) - 1]
