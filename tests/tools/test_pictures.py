"""Pictures in docs/ are shown there, and are of what is drawn."""

import re
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("perfetto", reason="the extra perfetto is not installed")
pytest.importorskip("vl_convert", reason="the extra report is not installed")

from tools import pictures

if TYPE_CHECKING:
    from playwright.sync_api import Browser

DOCS = pictures.ROOT / "docs"


def test_pictures_are_those_that_pages_show() -> None:
    """Each is in docs/images, small, and on a page; no other is."""
    sizes = {path.name: path.stat().st_size for path in pictures.IMAGES.iterdir()}
    assert sizes.keys() == set(pictures.NAMES)
    assert max(sizes.values()) <= pictures.MOST_BYTES
    pages = [path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")]
    for name in pictures.NAMES:
        assert any(f"](images/{name})" in page for page in pages), name


def test_the_terminal_picture_is_up_to_date() -> None:
    """It shows what the command prints today, with colours: run `make pictures`."""
    picture = (pictures.IMAGES / pictures.TERMINAL).read_text(encoding="utf-8")
    assert pictures.terminal_picture() == picture
    assert len(set(re.findall(r"fill: (#\w+)", picture))) > 4
    assert "@font-face" not in picture


def test_tracks_of_the_trace_have_names(chromium: "Browser") -> None:
    """Both arms, and of each the tracks that differ; a kernel is selected."""
    page = pictures.trace_page(chromium)
    assert re.findall(r"<(?:h2|span)>(.*?)</", page) == [
        "time",
        *("base", "kernels running", "gaps", "passes and regions", "stream 33"),
        *("other", "kernels running", "gaps", "passes and regions", "stream 33"),
        "stream 451",
    ]
