"""The page in a real browser: what it says, how it answers, and what it never does."""

import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import polars as pl
import pytest

pytest.importorskip("vl_convert", reason="the extra report is not installed")

from layerscope.render import colours
from layerscope.render.chart_scripts import ChartScripts
from layerscope.render.grids import grid
from layerscope.render.html import render
from layerscope.render.plain import plain
from layerscope.report import build_report
from layerscope.run import Run
from layerscope.run_header import RunHeader
from tests import edited, handmade
from tests.browser import Opened, opened
from tests.ingest import paper_runs
from tests.report.run_evidence import of_captures, of_kernels

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

TIMELINE = "#timeline-chart-1"
HOSTILE = {
    "attend": "</script><script>alert('kernel')</script>",
    "project": "<img src=x onerror=alert('image')> {{ 7 * 7 }}\x1b]0;title\x07\n\x00",
    "experts": '"><svg onload="alert(\'svg\')">',
    "moe": "<b>moe</b><script>alert('region')</script>\x1b[31m\n",
}
HOSTILE_ARM = "fused</title><script>alert('arm')</script>\x1b[2J\n\x00"
PAPER_PIXELS = 688
"""The width of A4 between margins of 14 mm, at 96 pixels an inch."""

ALL_DRAWN = (
    "() => [...document.querySelectorAll('.drawing')]"
    ".every((each) => each.dataset.drawn || each.textContent)"
)


def whole_run() -> Run:
    """Every kind of table and chart, in the layer's run and in its draft's."""
    return replace(edited.run(), draft=handmade.run())


def hostile_run() -> Run:
    """The same, by people who call things as nobody should."""
    run = whole_run()
    kernels = run.kernels.with_columns(
        pl.col("name").replace(HOSTILE), pl.col("region").replace(HOSTILE)
    )
    header = handmade.header(
        status="partial",
        status_reason="<script>alert('reason')</script>",
        warnings=["raise --time-budget <script>alert('warning')</script>"],
        command=["layerscope", "</code><script>alert('command')</script>"],
    )
    return renamed(replace(run, header=header, kernels=kernels))


def renamed(run: Run) -> Run:
    """`run`, whose second arm has a hostile name."""
    old, new = map(msgspec.json.encode, ("fused", HOSTILE_ARM))
    header = msgspec.json.encode(run.header).replace(old, new)
    arm = pl.col("arm").replace("fused", HOSTILE_ARM)
    return replace(
        run,
        header=msgspec.json.decode(header, type=RunHeader),
        samples=run.samples.with_columns(arm),
        kernels=run.kernels.with_columns(arm),
    )


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page of every run that is looked at here."""
    folder = tmp_path_factory.mktemp("pages")
    empty = edited.run()
    runs = {
        "whole": whole_run(),
        "hostile": hostile_run(),
        "empty": replace(
            empty, samples=empty.samples.clear(), kernels=empty.kernels.clear()
        ),
    }
    for name, run in runs.items():
        with ChartScripts() as scripts:
            page = render(run, scripts)
        (folder / f"{name}.html").write_text(page, encoding="utf-8")
    return folder


@contextmanager
def drawn(
    browser: "Browser", path: Path, width: int = 1200, scheme: str = "light"
) -> Iterator[Opened]:
    """The page once all its charts stand."""
    options = {"viewport": {"width": width, "height": 800}, "color_scheme": scheme}
    with opened(browser, path, **options) as found:
        found.page.wait_for_function(ALL_DRAWN)
        yield found


def ticks(page: "Page") -> list[str]:
    """What the axis of time says, in the order of an alphabet."""
    labels = page.locator(f"{TIMELINE} .role-axis-label").first
    return sorted(labels.locator("text").all_text_contents())


def longest_bar(page: "Page") -> "Locator":
    """The mark of the kernel that takes longest, of those that are in sight whole."""
    bars = page.locator(f"{TIMELINE} .mark-rect.role-mark path")
    widths = bars.evaluate_all(
        "all => all.map((e) => e.getBBox()).map(({x, width}) => x < 0 ? 0 : width)"
    )
    return bars.nth(widths.index(max(widths)))


def ground(page: "Page") -> str:
    """The colour behind everything, as ``#rrggbb``."""
    css = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", css))


def overflow(page: "Page") -> int:
    """By how many pixels the page is wider than the window."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))


def rows(table: "Locator") -> list[list[str]]:
    """The cells of the body of a table."""
    found: list[list[str]] = table.locator("tbody tr").evaluate_all(
        "all => all.map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    return found


@pytest.mark.parametrize("name", ["whole", "hostile", "empty"])
def test_nothing_complains_and_nothing_is_loaded(
    chromium: "Browser", pages: Path, name: str
) -> None:
    """The console stays empty, no dialog opens, and the page asks for itself alone."""
    path = pages / f"{name}.html"
    with drawn(chromium, path) as found:
        assert found.complaints == []
        assert found.dialogs == []
        assert found.requests == [path.as_uri()]


@pytest.mark.parametrize("name", ["whole", "hostile", "empty"])
def test_no_chart_is_warned_of(chromium: "Browser", pages: Path, name: str) -> None:
    """What draws charts finds nothing in them that it must drop or settle."""
    said: list[str] = []
    with drawn(chromium, pages / f"{name}.html") as found:
        found.page.on("console", lambda message: said.append(message.text))
        found.page.reload()
        found.page.wait_for_function(ALL_DRAWN)
    assert said == []


def test_the_page_forbids_requests(chromium: "Browser", pages: Path) -> None:
    """What got into the page all the same could load nothing and call nobody."""
    with drawn(chromium, pages / "whole.html") as found:
        assert found.page.evaluate(
            "fetch('http://localhost:1/').then(() => '', (error) => error.name)"
        ) == ("TypeError")
        assert "Content Security Policy" in " ".join(found.complaints)


def test_every_chart_is_drawn(chromium: "Browser", pages: Path) -> None:
    """All charts of the layer and of the draft stand, each beside its tables."""
    with drawn(chromium, pages / "whole.html") as found:
        page = found.page
        assert page.locator(".drawing").evaluate_all(
            "all => all.map(({id}) => id)"
        ) == [
            *("ledger-chart-1", "timeline-chart-1", "shares-chart-1"),
            *("samples-chart-1", "experiments-chart-1", "limits-chart-1"),
            *("draft-ledger-chart-1", "draft-timeline-chart-1", "draft-shares-chart-1"),
            "draft-samples-chart-1",
        ]
        sizes = page.locator(".drawing svg").evaluate_all(
            "all => all.map((each) => each.getBoundingClientRect().height)"
        )
        assert len(sizes) == 10
        assert min(sizes) > 40
        sections = page.locator("section:has(.drawing)")
        assert sections.count() == sections.filter(has=page.locator("table")).count()


def test_the_numbers_are_those_of_the_report(chromium: "Browser", pages: Path) -> None:
    """Every table of the report is there once, cell by cell, and the draft's too."""
    run = whole_run()
    assert run.draft is not None
    report = build_report(run)
    expected = [
        grid(table)
        for part, of in ((report, run), (report.parts[0], run.draft))
        for table in (*part.tables, *of_kernels(of), *of_captures(of))
    ]
    with drawn(chromium, pages / "whole.html") as found:
        tables = found.page.locator("main table")
        shown = [
            (
                tables.nth(index).locator("caption").text_content(),
                rows(tables.nth(index)),
            )
            for index in range(tables.count())
        ]
    told = [
        (each.title, [[cell.text for cell in row] for row in each.rows])
        for each in expected
    ]
    assert sorted(shown, key=str) == sorted(told, key=str)


def test_the_layer_table_on_paper(chromium: "Browser", pages: Path) -> None:
    """The first table has the numbers that the hand-made run was made of."""
    with drawn(chromium, pages / "whole.html") as found:
        assert rows(found.page.locator("main table").first)[1] == [
            *("fused", "30.00", "30.00…30.00"),
            *("−10.00", "−25.0 %", "−10.00…−10.00", "faster"),
            *("6.000 MB", "/ 6.000 MB", "= 1.00", "30.50", "3"),
        ]


def test_what_was_found_comes_first(chromium: "Browser", pages: Path) -> None:
    """Headline, verdicts, ledger and timeline stand in this order, in full."""
    report = build_report(whole_run())
    headline, *verdicts = report.headlines
    with drawn(chromium, pages / "whole.html") as found:
        page = found.page
        figure, detail = (
            page.locator(f".headline {part}").first.text_content() or ""
            for part in (".figure", ".detail")
        )
        reasons = page.locator(".reasons").first.text_content()
        change, _, rest = headline.text.partition(": ")
        assert f"{figure.removesuffix(detail).strip()} ({detail})" == change
        assert reasons == rest
        said = page.locator(".verdicts").first.locator("dd").all_text_contents()
        assert said == [verdict.text for verdict in verdicts]
        headings = page.locator("main h2").all_text_contents()
    assert headings[: headings.index("Limits of the machine") + 1] == [
        "Warnings",
        "One pass",
        "Where the change comes from",
        "Timeline of the median pass",
        "Regions",
        "Distribution of passes",
        "Regions taken out, and other edits",
        "Limits of the machine",
    ]


def test_facts_notes_and_warnings_are_there(chromium: "Browser", pages: Path) -> None:
    """Nothing that the report says is left out."""
    report = build_report(hostile_run())
    with drawn(chromium, pages / "hostile.html") as found:
        text = found.page.locator("main").inner_text()
    missing = [
        said
        for part in (report, *report.parts)
        for said in (
            *(fact.text for fact in part.facts),
            *part.notes,
            *part.warnings,
        )
        if plain(said) not in text
    ]
    assert report.warnings
    assert missing == []


def test_hovering_a_kernel_tells_of_it(chromium: "Browser", pages: Path) -> None:
    """The tooltip has the kernel's name and its time, and goes away."""
    with drawn(chromium, pages / "whole.html") as found:
        page = found.page
        longest_bar(page).hover()
        tooltip = page.locator("#vg-tooltip-element.visible")
        tooltip.wait_for()
        text = tooltip.inner_text()
        assert "attend" in text
        assert "20.00 µs" in text
        page.mouse.move(1, 1)
        tooltip.wait_for(state="hidden")


def test_hostile_names_are_text(chromium: "Browser", pages: Path) -> None:
    """Names from a trace are shown as they are, in tables and tooltips alike."""
    with drawn(chromium, pages / "hostile.html") as found:
        page = found.page
        longest_bar(page).hover()
        tooltip = page.locator("#vg-tooltip-element.visible")
        tooltip.wait_for()
        assert HOSTILE["attend"] in tooltip.inner_text()
        text = page.locator("main").text_content() or ""
        assert [name for name in HOSTILE.values() if plain(name) not in text] == []
        assert page.locator("main img, main b, main svg[onload]").count() == 0
        assert found.dialogs == []


def test_a_hostile_arm_is_text(chromium: "Browser", pages: Path) -> None:
    """In the headline, verdicts, charts, tooltips, tables and names of parts."""
    shown = plain(HOSTILE_ARM)
    with drawn(chromium, pages / "hostile.html") as found:
        page = found.page
        for part in (".headline .label", ".verdicts dt", "#anchors tbody th"):
            assert page.locator(part, has_text=shown).count() > 0, part
        for chart in ("ledger", "timeline", "shares", "samples"):
            texts = page.locator(f"#{chart}-chart-1 text").all_text_contents()
            assert any(text.startswith("fused</title><") for text in texts), chart
        bars = "#shares-chart-1 .mark-rect.role-mark path[aria-roledescription=bar]"
        page.locator(f"{bars}:nth-child(7)").hover()
        tooltip = page.locator("#vg-tooltip-element.visible")
        tooltip.wait_for()
        assert shown in tooltip.inner_text()
        regions = page.locator(".scroll").evaluate_all(
            "all => all.map((each) => each.ariaLabel)"
        )
        assert any(shown in region for region in regions)
        assert not {"\x1b", "\x00"} & set(page.content())
        assert found.dialogs == []


def test_zoom_by_pointer(chromium: "Browser", pages: Path) -> None:
    """The wheel scrolls the page; with Ctrl it zooms, and dragging moves along."""
    with drawn(chromium, pages / "whole.html") as found:
        page = found.page
        before = ticks(page)
        longest_bar(page).hover()
        page.mouse.wheel(0, -100)
        page.wait_for_timeout(200)
        assert ticks(page) == before
        longest_bar(page).hover()
        page.keyboard.down("Control")
        page.mouse.wheel(0, -500)
        page.keyboard.up("Control")
        page.wait_for_function(
            "([path, before]) => document.querySelector(path).textContent !== before",
            arg=[f"{TIMELINE} .role-axis-label", "".join(before)],
        )
        zoomed = ticks(page)
        box = page.locator(f"{TIMELINE} svg").bounding_box()
        assert box is not None
        middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.mouse.move(*middle)
        page.mouse.down()
        page.mouse.move(middle[0] - 150, middle[1], steps=4)
        page.mouse.up()
        page.wait_for_timeout(200)
        assert before != zoomed != ticks(page)


def test_zoom_by_keyboard(chromium: "Browser", pages: Path) -> None:
    """Buttons zoom in, move along, and bring all of it back."""
    with drawn(chromium, pages / "whole.html") as found:
        page = found.page
        before = ticks(page)
        figure = page.locator(f"figure:has({TIMELINE})")
        seen = [before]
        for name in ("Zoom in", "Later", "Show all"):
            figure.get_by_role("button", name=name).press("Enter")
            page.wait_for_timeout(200)
            seen.append(ticks(page))
        assert seen[0] != seen[1] != seen[2] != seen[3]
        assert seen[3] == before


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system(
    chromium: "Browser", pages: Path, scheme: str
) -> None:
    """Without a choice the page is as light as the system."""
    with drawn(chromium, pages / "whole.html", scheme=scheme) as found:
        assert ground(found.page) == getattr(colours.PAGE, scheme)


def test_the_theme_can_be_chosen_by_keyboard(chromium: "Browser", pages: Path) -> None:
    """Tab and the arrows change it, and charts follow without being drawn anew."""
    with drawn(chromium, pages / "whole.html") as found:
        page = found.page
        page.keyboard.press("Tab")  # the way around the header
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        assert ground(page) == colours.PAGE.light
        page.keyboard.press("ArrowRight")
        assert ground(page) == colours.PAGE.dark
        fill = longest_bar(page).evaluate("each => getComputedStyle(each).fill")
        red, green, blue = (int(part) for part in re.findall(r"\d+", fill))
        assert f"#{red:02x}{green:02x}{blue:02x}" == (
            colours.REGION_COLOURS["attention"].dark
        )


@pytest.mark.parametrize("name", ["whole", "hostile", "empty"])
def test_a_narrow_screen(chromium: "Browser", pages: Path, name: str) -> None:
    """At 390 pixels only tables scroll sideways, never the page, all tables opened."""
    with drawn(chromium, pages / f"{name}.html", width=390) as found:
        page = found.page
        page.evaluate(
            "document.querySelectorAll('details').forEach((each) => each.open = true)"
        )
        assert overflow(page) == 0
        widest = page.locator(".drawing svg").evaluate_all(
            "all => Math.max(0, ...all.map((e) => e.getBoundingClientRect().right))"
        )
        assert widest <= 390


def painted(pdf: bytes) -> str:
    """What the pages of a document draw."""
    streams = re.findall(rb"FlateDecode.*?stream\r?\n(.*?)endstream", pdf, re.DOTALL)
    return "\n".join(
        zlib.decompressobj().decompress(each).decode("latin-1") for each in streams
    )


def test_print(chromium: "Browser", pages: Path) -> None:
    """Paper is light, shows short tables, and needs no controls."""
    with drawn(chromium, pages / "whole.html", scheme="dark") as found:
        page = found.page
        table = page.locator("#ledger table").first
        assert table.is_hidden()
        page.emulate_media(media="print")
        assert ground(page) == colours.PAGE.light
        assert page.locator(".theme").is_hidden()
        assert page.get_by_role("button", name="Zoom in").count() == 0
        assert table.locator("th").first.evaluate("e => e.checkVisibility()")


def test_paper_has_room_for_everything(chromium: "Browser", pages: Path) -> None:
    """Nothing lies beyond the right edge, and the pages are few."""
    with drawn(chromium, pages / "whole.html") as found:
        page = found.page
        page.emulate_media(media="print")
        page.set_viewport_size({"width": PAPER_PIXELS, "height": 1000})
        beyond = page.locator("main :not(svg *)").evaluate_all(
            "(all, width) => all.filter((e) => e.checkVisibility() &&"
            " e.getBoundingClientRect().right > width + 1)"
            ".map((e) => `${e.tagName} ${e.textContent}`)",
            arg=PAPER_PIXELS,
        )
        assert beyond == []
        count = len(re.findall(rb"/Type\s*/Page\b", page.pdf()))
        assert 4 <= count <= 12


def test_paper_shows_the_colours_of_regions(chromium: "Browser", pages: Path) -> None:
    """Grounds are not printed, but the squares beside regions are."""
    shade = bytes.fromhex(colours.REGION_COLOURS["attention"].light[1:])
    parts = (f"{part / 255:.4f}".strip("0") for part in shade)
    fills = f"{' '.join(parts)} rg"
    with drawn(chromium, pages / "whole.html") as found:
        page = found.page
        page.evaluate("document.querySelectorAll('figure').forEach((e) => e.remove())")
        assert fills in painted(page.pdf())
        page.evaluate("document.querySelectorAll('.swatch').forEach((e) => e.remove())")
        assert fills not in painted(page.pdf())


@pytest.mark.parametrize(
    ("packages", "maker"),
    [({"layerscope": "1.2"}, "layerscope 1.2"), ({}, "layerscope")],
)
def test_the_footer_names_the_version_if_it_is_known(
    packages: dict[str, str], maker: str
) -> None:
    """An older run did not record it, and then nothing stands in its place."""
    environment = msgspec.structs.replace(handmade.environment(), packages=packages)
    run = handmade.run(environment=environment)
    with ChartScripts() as scripts:
        page = render(run, scripts)
    assert f"<p>{maker}, recorded {run.header.created}</p>" in page


def test_a_trace_is_a_page_of_what_was_observed(
    chromium: "Browser", tmp_path: Path
) -> None:
    """Its charts are drawn; nothing on it is an anchor, an interval or a verdict."""
    path = tmp_path / "page.html"
    with ChartScripts() as scripts:
        path.write_text(render(paper_runs.run(), scripts), encoding="utf-8")
    with opened(chromium, path) as found:
        found.page.wait_for_function(ALL_DRAWN)
        text = found.page.inner_text("body")
        assert found.complaints == found.requests[1:] == []
    assert "34.00 µs a layer" in text
    assert "3 kernels outside of steps" in text
    for word in ("95 %", "noise floor", "no difference", "limit of"):
        assert word not in text
