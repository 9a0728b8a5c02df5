"""Several causes at once: arms to which one after another is added."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from layerscope.analyze.causes import FUSION, Cause
from layerscope.selftest.cases import (
    BASE,
    REGIONS,
    Chain,
    Start,
    merged,
    pairs,
    uniform,
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

_MERGEABLE: Final = REGIONS[1:]
_WORKED: Final = tuple(launch for launch in uniform() if launch.region == REGIONS[0])

MIXED: Final[Mapping[str, Chain]] = {
    BASE: (*with_change(_WORKED, 0, extra=3), *pairs(*_MERGEABLE)),
    WORK: (*_WORKED, *pairs(*_MERGEABLE)),
    FUSION_ADDED: (*_WORKED, *merged(*_MERGEABLE)),
    OVERLAP_ADDED: tuple(
        replace(launch, start=Start.EARLY)
        for launch in (*_WORKED, *merged(*_MERGEABLE))
    ),
}
"""Arms of one study, each with one thing more than the one before it: less work in a
kernel, kernels merged in the other regions, and an early start of all."""

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
