"""Every colour of pages and charts, in a light and a dark shade.

No two colours of regions look alike to anyone: their shades also differ for eyes that
lack a cone, and all of them stand out from the page. Meaning never hangs on colour
alone; where it helps to tell things apart, a label says the same.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from layerscope.regions import Region, in_order
from layerscope.schema import UNASSIGNED


@dataclass(frozen=True, slots=True)
class Colour:
    """One colour as ``#rrggbb``, for a light and for a dark page."""

    light: str
    dark: str


# What text is written in and on: at least 4.5 : 1 on either ground.
PAGE: Final = Colour("#ffffff", "#14171c")
"""The ground of everything."""

SURFACE: Final = Colour("#f5f6f8", "#1c2026")
"""The ground of what is set apart: totals, code, tooltips."""

TEXT: Final = Colour("#1b1f24", "#e6e8eb")
MUTED: Final = Colour("#59616c", "#a0a8b3")
"""Labels, intervals, axes."""

LINK: Final = Colour("#1f5fb0", "#7db4f5")
"""Links and the ring around what has the focus."""

RULE: Final = Colour("#d9dce1", "#333942")
"""Lines between rows, and of grids."""

FASTER: Final = Colour("#1f5fb0", "#7db4f5")
SLOWER: Final = Colour("#9a5200", "#f0b35a")
NEUTRAL: Final = Colour("#59616c", "#a0a8b3")
"""What is neither: anchors, residuals, differences within the noise floor."""

GAP: Final = Colour("#c3c7ce", "#4a515c")
"""Time in which no kernel runs."""

OVERLAP: Final = TEXT
"""Marks the part of a kernel that is hidden behind others."""

_MLP: Final = Colour("#a8460b", "#f58a45")
REGION_COLOURS: Final[dict[str, Colour]] = {
    Region.ATTENTION.value: Colour("#1c4aa3", "#5b8ff0"),
    Region.O_PROJ_ALL_REDUCE.value: Colour("#2aa089", "#8fe6cd"),
    Region.MOE.value: _MLP,
    Region.MLP.value: _MLP,  # no layer has both
    Region.MHC.value: Colour("#6c1c58", "#d99fcf"),
    Region.DRAFT.value: Colour("#a6810a", "#f2d066"),
    Region.OTHER.value: Colour("#666c78", "#868a92"),
}
"""Of the regions that layers have, by name."""

_FOREIGN: Final = (
    REGION_COLOURS[Region.DRAFT],
    REGION_COLOURS[Region.MHC],
    REGION_COLOURS[Region.O_PROJ_ALL_REDUCE],
    REGION_COLOURS[Region.ATTENTION],
    _MLP,
)
"""Of regions with names of their own, beside which few of a layer's stand."""


def colour_of(region: str, index: int = 0) -> Colour:
    """The colour of `region`.

    Args:
        region: a name, of a layer's region or of foreign code's.
        index: which of the foreign regions it is, from 0; no matter for a layer's.
    """
    if region == UNASSIGNED:
        return REGION_COLOURS[Region.OTHER]
    return REGION_COLOURS.get(region, _FOREIGN[index % len(_FOREIGN)])


def colours_of(regions: Iterable[str]) -> dict[str, Colour]:
    """The colour of each of `regions`, in order; foreign ones take theirs in turn."""
    ordered = in_order(regions)
    known = {*REGION_COLOURS, UNASSIGNED}
    foreign = [name for name in ordered if name not in known]
    return {
        name: colour_of(name, foreign.index(name) if name in foreign else 0)
        for name in ordered
    }


def named_colours() -> dict[str, Colour]:
    """The colours that have a name here, by that name in small letters."""
    return {
        name.lower(): value
        for name, value in globals().items()
        if isinstance(value, Colour) and not name.startswith("_")
    }


def every_colour() -> tuple[Colour, ...]:
    """All that a chart may have; some more than once."""
    return (*named_colours().values(), *REGION_COLOURS.values())
