"""The studies of the self-test, by name."""

from collections.abc import Mapping
from typing import Final

from layerscope.selftest.cases import CASES, Chain
from layerscope.selftest.mixtures import MIXED

MIXED_NAME: Final = "mixtures"
"""What the study of `MIXED` is called."""

NAMES: Final = (*(case.name for case in CASES), MIXED_NAME)
"""Of all studies, in their order."""


def planted_arms(name: str) -> tuple[Mapping[str, Chain], int]:
    """The arms of the study `name` (of `NAMES`), and its `Case.reads`."""
    if name == MIXED_NAME:
        return MIXED, 1
    case = next(case for case in CASES if case.name == name)
    return case.arms, case.reads
