"""What Perfetto's own viewer draws of a trace; skips where it is missing."""

from collections.abc import Iterable
from io import BytesIO
from typing import TYPE_CHECKING

import pytest

from layerscope.render.perfetto import export_median
from tests.perfetto import runs
from tests.perfetto.reading import Slice, read
from tests.perfetto.viewer import drawn, places, shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TRACKS = [
    ("reference", "stream 7"),
    ("fused", "stream 7"),
    ("fused", "stream 7, beside 1"),
    ("fused", "stream 9"),
    ("fused", "gaps"),
    ("fused (serial)", "stream 7"),
]


def test_slices_are_drawn_where_they_ran(chromium: "Browser") -> None:
    """On every track the coloured pixels are the spans of slices, and no others."""
    file = BytesIO()
    export_median(runs.run(), file)
    found = read(file.getvalue())
    size = {"width": 1500, "height": 900}
    with shown(chromium, file.getvalue(), viewport=size) as page:
        for process, track in TRACKS:
            spans = united(
                each for each in found.slices if where(each) == (process, track)
            )
            pixels = drawn(page, process, track)
            assert len(pixels) == len(spans), track
            for pixel, span in zip(pixels, spans, strict=True):
                assert pixel == pytest.approx(places(page, span), abs=2), track


def where(found: Slice) -> tuple[str, str]:
    """The track of a slice."""
    return found.process, found.track


def united(slices: Iterable[Slice]) -> list[list[int]]:
    """Start and end of each stretch of slices that touch."""
    spans: list[list[int]] = []
    for each in slices:
        if spans and each.start_ns <= spans[-1][1]:
            spans[-1][1] = each.end_ns
        elif each.start_ns < each.end_ns:
            spans.append([each.start_ns, each.end_ns])
    return spans
