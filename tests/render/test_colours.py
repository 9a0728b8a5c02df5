"""Whether everyone can read the page, by WCAG 2.2 and by models of colour blindness."""

from itertools import combinations

import numpy as np
import pytest

from layerscope.render import colours
from layerscope.render.colours import REGION_COLOURS, Colour, colour_of

SHADES = ("light", "dark")
GROUNDS = {"page": colours.PAGE, "surface": colours.SURFACE}
WRITTEN = {
    "text": colours.TEXT,
    "muted": colours.MUTED,
    "link": colours.LINK,
    "faster": colours.FASTER,
    "slower": colours.SLOWER,
}
DRAWN = REGION_COLOURS | {
    "neutral": colours.NEUTRAL,
    "faster": colours.FASTER,
    "slower": colours.SLOWER,
}
VISIONS = {
    # Machado, Oliveira and Fernandes 2009, severity 1: linear RGB as it looks
    "all cones": np.eye(3),
    "no red": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "no green": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "no blue": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
# Ottosson 2020: linear RGB to cones, and their cube roots to Oklab
TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
TO_OKLAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
TOLD_APART = 0.09
"""In Oklab, where 0.02 is what eyes just notice side by side."""


def linear(shade: str) -> np.ndarray:
    """``#rrggbb`` as linear RGB from 0 to 1."""
    encoded = np.array([int(shade[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(
        encoded <= 0.04045, encoded / 12.92, ((encoded + 0.055) / 1.055) ** 2.4
    )


def contrast(one: str, other: str) -> float:
    """The contrast ratio of two shades, from 1 to 21."""
    dark, light = sorted(
        linear(each) @ [0.2126, 0.7152, 0.0722] for each in (one, other)
    )
    return float((light + 0.05) / (dark + 0.05))


def distance(one: str, other: str, vision: str) -> float:
    """How different two shades look to a vision."""
    seen = (np.clip(VISIONS[vision] @ linear(each), 0, 1) for each in (one, other))
    first, second = (TO_OKLAB @ np.cbrt(TO_CONES @ each) for each in seen)
    return float(np.linalg.norm(first - second))


def test_the_contrast_of_black_and_white() -> None:
    """Black on white has the largest ratio there is."""
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


@pytest.mark.parametrize("shade", SHADES)
@pytest.mark.parametrize("ground", GROUNDS)
@pytest.mark.parametrize("name", WRITTEN)
def test_text_can_be_read(name: str, ground: str, shade: str) -> None:
    """All text has at least 4.5 : 1 on whatever it stands."""
    text, behind = getattr(WRITTEN[name], shade), getattr(GROUNDS[ground], shade)
    assert contrast(text, behind) >= 4.5


@pytest.mark.parametrize("shade", SHADES)
@pytest.mark.parametrize("name", DRAWN)
def test_marks_can_be_seen(name: str, shade: str) -> None:
    """All marks have at least 3 : 1 on the page."""
    assert contrast(getattr(DRAWN[name], shade), getattr(colours.PAGE, shade)) >= 3


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("shade", SHADES)
def test_regions_can_be_told_apart(shade: str, vision: str) -> None:
    """No two regions of a layer look alike, whichever cones an eye has."""
    of_layers = {name: each for name, each in REGION_COLOURS.items() if name != "draft"}
    found = {getattr(each, shade) for each in of_layers.values()}
    assert len(found) == len(of_layers) - 1  # MoE and MLP share theirs
    assert all(
        distance(one, other, vision) >= TOLD_APART
        for one, other in combinations(found, 2)
    )


def test_a_light_shade_has_one_dark_one() -> None:
    """Pages find the dark shade by the light one, so it must be clear."""
    named = [each for each in vars(colours).values() if isinstance(each, Colour)]
    pairs = {*named, *REGION_COLOURS.values()}
    assert len({each.light for each in pairs}) == len(pairs)


def test_foreign_regions_have_colours() -> None:
    """Foreign regions differ from their neighbours, and a known name never changes."""
    found = [colour_of(f"stage_{index}", index) for index in range(6)]
    assert len(set(found[:5])) == 5
    assert found[5] == found[0]
    assert colour_of("moe", 3) == REGION_COLOURS["moe"]


def test_foreign_regions_take_their_colours_in_turn() -> None:
    """Each has another; a layer's own keeps its colour, and ``other`` stays last."""
    found = colours.colours_of(["other", "b_mine", "moe", "a_mine"])
    assert list(found) == ["moe", "a_mine", "b_mine", "other"]
    assert found["moe"] == colours.REGION_COLOURS["moe"]
    assert len(set(found.values())) == 4
