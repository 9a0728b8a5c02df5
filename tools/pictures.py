"""Takes the pictures in docs/images anew, from recorded runs: `make pictures`.

Those of the report page and of a trace need what `make browsers` installs; names of
pictures take some of them only. From the root of the checkout:
``python -m tools.pictures [NAME ...]``.
"""

import argparse
import base64
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from io import BytesIO, StringIO
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.text import Text

from layerscope.render.chart_scripts import ChartScripts
from layerscope.render.html import render
from layerscope.render.perfetto import export_median
from layerscope.run import load
from layerscope.units import format_bytes
from tests.browser import started
from tests.perfetto.reading import Slice, read
from tests.perfetto.viewer import places, rows, shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT: Final = Path(__file__).resolve().parent.parent
IMAGES: Final = ROOT / "docs" / "images"
RUN: Final = Path("fixtures", "h200", "qwen3-30b-a3b-tp4-rows6-bfloat16")
TRACED: Final = Path("fixtures", "h200-selftest", "branches")
ARMS: Final = ("base", "other")  # of TRACED; only the second runs kernels at a time
MOST_BYTES: Final = 300_000
COLUMNS: Final = 100

PAGES: Final = {
    # theme, width and height in pixels, and the part of the page at the top
    "report-light.png": ("light", 1240, 1560, "#report"),
    "report-dark.png": ("dark", 1240, 1560, "#timeline"),
    "report-narrow.png": ("light", 390, 1400, "#report"),
}
TRACE: Final = "perfetto.png"
TERMINAL: Final = "terminal.svg"
NAMES: Final = (TERMINAL, TRACE, *PAGES)

_WIDTH: Final = 1000  # of what the viewer draws, in pixels
_AXIS: Final = (46, 26)  # top and height of its times
_LEFT_OUT: Final = ("SM clock", "power")  # the same on every arm, all the time
_BESIDE: Final = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 8px 12px; width: max-content; background: #fff;
  font: 13px/1.3 sans-serif; color: #222 }}
h2 {{ font-size: 14px; margin: 10px 0 2px; border-top: 1px solid #bbb;
  padding-top: 6px }}
.track {{ display: flex; align-items: center }}
.track span {{ width: 158px }}
.track i {{ width: {width}px; background-image: url("data:image/png;base64,{image}") }}
p {{ margin: 12px 0 0; color: #555 }}
</style>{body}<p>Drawn by a viewer of 2021, which draws no names of its own: those at
the left are written beside it. Arrows lead along the edges of the graph.</p>"""


@dataclass(frozen=True, slots=True)
class Strip:
    """A track as the viewer has drawn it; pixels of its page."""

    arm: str
    title: str
    top: int
    height: int


def main(names: Sequence[str]) -> None:
    """Take the pictures of these names, and print their sizes."""
    program = shutil.which("chromium")
    if program is None and set(names) - {TERMINAL}:
        sys.exit("there is no Chromium: make browsers")
    IMAGES.mkdir(parents=True, exist_ok=True)
    if TERMINAL in names:
        keep(TERMINAL, terminal_picture().encode())
    if program is not None and set(names) - {TERMINAL}:
        with started(program) as browser:
            if TRACE in names:
                keep(TRACE, trace_picture(browser))
            for name, picture in page_pictures(browser, names):
                keep(name, picture)


def keep(name: str, picture: bytes) -> None:
    """Write a picture, unless it is too large for a document."""
    if len(picture) > MOST_BYTES:
        sys.exit(f"{name} is larger than {format_bytes(MOST_BYTES)}")
    (IMAGES / name).write_bytes(picture)
    print(f"docs/images/{name}: {format_bytes(len(picture))}")


def terminal_picture() -> str:
    """What ``layerscope show --timeline`` draws in a terminal, as SVG."""
    command = ["layerscope", "show", str(RUN), "--timeline"]
    terminal = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    given = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    drawn = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=ROOT,
        env=given | terminal,
        capture_output=True,
        check=True,
    ).stdout.decode()
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(drawn.rstrip()))
    svg = console.export_svg(title=" ".join(command), unique_id="terminal")
    # Its fonts would come from another host; those of the reader are as wide.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    return re.sub(r"[ \t]+$", "", svg, flags=re.MULTILINE)


def trace_picture(browser: "Browser") -> bytes:
    """Median passes in Perfetto's own viewer, with names beside its tracks."""
    content = trace_page(browser)
    page = browser.new_page()
    page.set_content(content)
    picture = page.locator("body").screenshot()
    page.close()
    return picture


def trace_page(browser: "Browser") -> str:
    """A page that shows what the viewer draws once a kernel is selected."""
    file = BytesIO()
    export_median(load(ROOT / TRACED), file, ARMS)
    trace = file.getvalue()
    chosen = beside_another(trace)
    with shown(browser, trace, viewport={"width": _WIDTH, "height": 900}) as page:
        strips = strips_of(page)
        middle = sum(places(page, [chosen.start_ns, chosen.end_ns])) / 2
        (track,) = (
            each
            for each in strips
            if (each.arm, each.title) == (chosen.process, chosen.track)
        )
        page.mouse.click(middle, track.top + track.height / 2)
        page.mouse.move(0, 0)
        page.wait_for_timeout(1_000)  # it draws when the browser is idle
        return beside(page.screenshot(), strips)


def strips_of(page: "Page") -> list[Strip]:
    """The tracks of `ARMS` that the viewer shows, from the top, but for some."""
    return [
        Strip(process, track, top, height)
        for process, track, top, height in rows(page)
        if process in ARMS
        and not track.startswith((process, *_LEFT_OUT))  # the first of these is empty
    ]


def beside_another(trace: bytes) -> Slice:
    """A kernel in the median pass of the last arm: the first that has one beside it."""
    found = read(trace)
    kernels = [each for each in found.of("kernel") if each.process == ARMS[-1]]
    (median,) = (
        each.arguments["pass"]
        for each in found.of("pass")
        if each.process == ARMS[-1] and each.name.endswith("the median")
    )
    within = [each for each in kernels if each.arguments["pass"] == median]
    return next(one for one, other in pairwise(within) if other.start_ns < one.end_ns)


def beside(image: bytes, strips: Sequence[Strip]) -> str:
    """A page of strips of `image`, each beside its name, below the name of its arm."""
    axis = Strip("", "time", *_AXIS)
    lines = [line(axis)]
    for arm in ARMS:
        lines.append(f"<h2>{escape(arm)}</h2>")
        lines += [line(each) for each in strips if each.arm == arm]
    encoded = base64.b64encode(image).decode()
    return _BESIDE.format(width=_WIDTH, image=encoded, body="\n".join(lines))


def line(strip: Strip) -> str:
    """One strip, and its name."""
    place = f"height: {strip.height}px; background-position: 0 -{strip.top}px"
    title = escape(strip.title.partition(" (")[0])
    return f'<div class="track"><span>{title}</span><i style="{place}"></i></div>'


def page_pictures(browser: "Browser", names: Sequence[str]) -> list[tuple[str, bytes]]:
    """Those pictures of the report page that are among `names`."""
    wanted = [name for name in PAGES if name in names]
    if not wanted:
        return []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        with ChartScripts() as scripts:
            path.write_text(render(load(ROOT / RUN), scripts), encoding="utf-8")
        return [(name, page_picture(browser, path, name)) for name in wanted]


def page_picture(browser: "Browser", path: Path, name: str) -> bytes:
    """One picture of the page in `path`, once its charts stand."""
    scheme, width, height, top = PAGES[name]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    page.goto(path.as_uri())
    page.locator(".drawing[data-drawn]").last.wait_for()
    if top != "#report":
        page.locator(top).evaluate("each => each.scrollIntoView()")
    picture = page.screenshot()
    context.close()
    return picture


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    given = parser.parse_args().names or NAMES
    unknown = sorted(set(given) - set(NAMES))
    if unknown:
        parser.error(f"there is no {unknown[0]}; there are {', '.join(NAMES)}")
    main(given)
