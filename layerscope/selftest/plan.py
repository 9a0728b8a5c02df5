"""The studies of the self-test, by name."""

from collections.abc import Mapping
from typing import Final, TypeAlias

from layerscope.selftest.cases import CASES, Chain
from layerscope.selftest.mixtures import MIXED

MIXED_NAME: Final = "mixtures"
"""What the study of `MIXED` is called."""

NAMES: Final = (*(case.name for case in CASES), MIXED_NAME)
"""Of all studies, in their order."""


Planted: TypeAlias = tuple[Mapping[str, Chain], int]
"""Arms by name, the one that others are compared with first, and their `Case.reads`."""


def planted_arms(name: str) -> Planted:
    """What the study `name` (of `NAMES`) is of."""
    if name == MIXED_NAME:
        return MIXED, 1
    case = next(case for case in CASES if case.name == name)
    return case.arms, case.reads
