"""Takes the pictures of the report page in docs/images anew, from a recorded run.

Needs the extra ``report``, playwright, and the Chromium of the machine.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from layerscope.render.chart_scripts import ChartScripts
from layerscope.render.html import render
from layerscope.run import load
from layerscope.units import format_bytes

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "fixtures" / "h200" / "qwen3-30b-a3b-tp4-rows6-bfloat16"
IMAGES = ROOT / "docs" / "images"
MOST_BYTES = 300_000
PICTURES = {
    # theme, width and height in pixels, and the part of the page at the top
    "report-light": ("light", 1240, 1560, "#report"),
    "report-dark": ("dark", 1240, 1560, "#timeline"),
    "report-narrow": ("light", 390, 1400, "#report"),
}


def main(run: Path) -> None:
    """Write every picture of the page of `run`, and print their sizes."""
    program = shutil.which("chromium")
    if program is None:
        sys.exit("there is no Chromium: apt-get install chromium")
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page = Path(folder) / "report.html"
        with ChartScripts() as scripts:
            page.write_text(render(load(run), scripts), encoding="utf-8")
        flags = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        for name in PICTURES:
            output = IMAGES / f"{name}.png"
            take(browser, page, name, output)
            size = output.stat().st_size
            print(f"{output.relative_to(ROOT)}: {format_bytes(size)}")
            if size > MOST_BYTES:
                sys.exit(f"{name} is larger than {format_bytes(MOST_BYTES)}")
        browser.close()


def take(browser: Browser, path: Path, name: str, output: Path) -> None:
    """One picture of the page in `path`, once its charts stand."""
    scheme, width, height, top = PICTURES[name]
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page = context.new_page()
    page.goto(path.as_uri())
    page.locator(".drawing[data-drawn]").last.wait_for()
    if top != "#report":
        page.locator(top).evaluate("each => each.scrollIntoView()")
    page.screenshot(path=output)
    context.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", type=Path, default=RUN)
    main(parser.parse_args().run)
