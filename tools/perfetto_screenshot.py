"""Takes the picture of a trace in docs/images anew, from a recorded run.

Needs what ``make browsers`` installs. From the root of the checkout:
``python -m tools.perfetto_screenshot``.
"""

import argparse
import shutil
import sys
from io import BytesIO
from pathlib import Path

from playwright.sync_api import sync_playwright

from layerscope.render.perfetto import export_median
from layerscope.run import load
from tests.perfetto.viewer import shown

ROOT = Path(__file__).resolve().parent.parent
RUN = ROOT / "fixtures" / "h200-selftest" / "branches"
IMAGE = ROOT / "docs" / "images" / "perfetto.png"
SIZE = {"width": 1500, "height": 540}
ARMS = ("base", "other")


def main(run: Path, arms: tuple[str, ...]) -> None:
    """Draw the median passes of `arms` in Perfetto's own viewer."""
    program = shutil.which("chromium")
    if program is None:
        sys.exit("there is no Chromium: make browsers")
    trace = BytesIO()
    export_median(load(run), trace, arms)
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        browser = playwright.chromium.launch(executable_path=program, args=flags)
        with shown(browser, trace.getvalue(), viewport=SIZE) as page:
            page.screenshot(path=IMAGE)
        browser.close()
    print(f"{IMAGE.relative_to(ROOT)}: {IMAGE.stat().st_size} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", type=Path, default=RUN)
    parser.add_argument("arms", nargs="*", default=ARMS)
    given = parser.parse_args()
    main(given.run, tuple(given.arms))
