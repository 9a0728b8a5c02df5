"""Whether the page can be used by keyboard, and heard instead of seen."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("vl_convert", reason="the extra report is not installed")

from layerscope.render.chart_scripts import ChartScripts
from layerscope.render.html import render
from tests import edited, handmade
from tests.browser import opened

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a run with every kind of chart, and of its draft."""
    found = tmp_path_factory.mktemp("page") / "report.html"
    run = replace(edited.run(), draft=handmade.run())
    with ChartScripts() as scripts:
        found.write_text(render(run, scripts), encoding="utf-8")
    return found


def test_landmarks_and_headings(chromium: "Browser", path: Path) -> None:
    """One banner, main and footer; headings go down a level at a time; a language."""
    with opened(chromium, path) as found:
        page = found.page
        counts = [
            page.get_by_role(role).count() for role in ("banner", "main", "contentinfo")
        ]
        levels = page.locator("h1, h2, h3").evaluate_all(
            "all => all.map((each) => Number(each.tagName[1]))"
        )
        assert counts == [1, 1, 1]
        assert levels[0] == 1
        assert all(below - above <= 1 for above, below in pairwise(levels))
        assert page.locator("html").get_attribute("lang") == "en"
        assert page.title() == "paper-moe, layer 0 – layerscope"


def test_charts_have_names(chromium: "Browser", path: Path) -> None:
    """Every chart is one image that says what it shows and how to read it."""
    with opened(chromium, path) as found:
        page = found.page
        page.locator(".drawing[data-drawn]").last.wait_for()
        for drawing in page.locator(".drawing").all():
            caption = drawing.get_attribute("aria-labelledby")
            assert drawing.get_attribute("role") == "img"
            assert len(page.locator(f"#{caption}").inner_text()) > 20


def test_names_are_told_apart(chromium: "Browser", path: Path) -> None:
    """No two charts, zooms or tables of the layer and its draft are called the same."""
    with opened(chromium, path) as found:
        page = found.page
        page.locator(".drawing[data-drawn]").last.wait_for()
        for part in (".zoom", ".scroll"):
            names = page.locator(part).evaluate_all(
                "all => all.map((each) => each.ariaLabel)"
            )
            assert len(names) == len(set(names)) > 1, part
        assert page.locator("#ledger .zoom").get_attribute("aria-label") == (
            "Zoom: from reference to fused"
        )


def test_charts_lead_to_their_tables(chromium: "Browser", path: Path) -> None:
    """A chart is described by the titles of the tables beneath it."""
    with opened(chromium, path) as found:
        page = found.page
        for drawing in page.locator(".drawing").all():
            told = drawing.get_attribute("aria-describedby") or ""
            texts = [page.locator(f"#{each}").inner_text() for each in told.split()]
            assert texts
            assert all(text.startswith("Table: ") for text in texts)


def test_tables_have_captions_and_heads(chromium: "Browser", path: Path) -> None:
    """A screen reader can say of every cell in which row and column it is."""
    with opened(chromium, path) as found:
        tables = found.page.locator("main table").all()
        assert tables
        for table in tables:
            assert table.locator("caption").text_content()
            heads = table.locator("thead th")
            assert heads.count() == table.locator("thead th[scope]").count() > 0
            rows = table.locator("tbody tr")
            assert rows.count() == table.locator("tbody tr > th[scope=row]").count()


def test_ids_are_unique(chromium: "Browser", path: Path) -> None:
    """What a label or a link points to is one thing."""
    with opened(chromium, path) as found:
        ids = found.page.locator("[id]").evaluate_all("all => all.map(({id}) => id)")
        assert len(ids) == len(set(ids))


def test_the_keyboard_reaches_everything(chromium: "Browser", path: Path) -> None:
    """Theme, zoom, tables: each can be focused, and the focus can be seen."""
    with opened(chromium, path) as found:
        page = found.page
        page.locator(".drawing[data-drawn]").last.wait_for()
        reached = set()
        for _ in range(80):
            page.keyboard.press("Tab")
            tag, outline = page.evaluate(
                "(() => { const e = document.activeElement;"
                " const shown = e.type === 'radio' ? e.nextElementSibling : e;"
                " return [e.tagName, getComputedStyle(shown).outlineStyle]; })()"
            )
            if tag == "BODY":
                break
            reached.add(tag)
            assert outline != "none", tag
        assert {"A", "INPUT", "BUTTON", "SUMMARY", "DIV"} <= reached


def test_the_header_can_be_skipped(chromium: "Browser", path: Path) -> None:
    """The first stop of the keyboard leads to the report."""
    with opened(chromium, path) as found:
        page = found.page
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "report"


def test_without_scripts(chromium: "Browser", path: Path) -> None:
    """Where scripts are off, the page says so and its tables are there."""
    with opened(chromium, path, java_script_enabled=False) as found:
        page = found.page
        note = page.locator("noscript")
        assert "Charts need JavaScript." in note.inner_html()
        assert note.bounding_box() is not None
        assert page.locator("#anchors table").is_visible()
        page.locator("#ledger summary").first.click()
        assert page.locator("#ledger table").first.is_visible()
