"""A real Chromium for tests of pages; they skip, with the reason, where there is none.

The browser is the machine's own: playwright drives it, and brings none.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Dialog, Page

TIMEOUT_MS = 15_000
FLAGS = (
    *("--no-sandbox", "--disable-gpu"),
    *("--disable-background-networking", "--no-first-run"),
)


@pytest.fixture(scope="session")
def chromium() -> Iterator["Browser"]:
    """One browser for all tests; each opens pages of its own."""
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("there is no Chromium: make browsers")
    with started(program) as browser:
        yield browser


@contextmanager
def started(program: str) -> Iterator["Browser"]:
    """The Chromium at `program`, driven by playwright."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 (not everywhere)

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Opened:
    """A page, and what happened to it since it was opened.

    It has no slots, as playwright notes its listeners on what they are methods of.
    """

    page: "Page"
    complaints: list[str] = field(default_factory=list)
    """Errors on its console, and those that nobody caught."""

    dialogs: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def heard(self, message: "ConsoleMessage") -> None:
        """Note what the console says if it is an error."""
        if message.type == "error":
            self.complaints.append(message.text)

    def asked(self, dialog: "Dialog") -> None:
        """Note and close a dialog, which would stop the page."""
        self.dialogs.append(dialog.message)
        dialog.dismiss()


@contextmanager
def opened(
    browser: "Browser",
    path: Path,
    **options: Any,  # noqa: ANN401 (whatever a context takes)
) -> Iterator[Opened]:
    """The page in the file `path`, in a context of its own with `options`."""
    context = browser.new_context(**options)
    context.set_default_timeout(TIMEOUT_MS)
    found = Opened(context.new_page())
    page = found.page
    page.on("console", found.heard)
    page.on("pageerror", lambda error: found.complaints.append(str(error)))
    page.on("request", lambda request: found.requests.append(request.url))
    page.on("dialog", found.asked)
    try:
        page.goto(path.as_uri())
        yield found
    finally:
        context.close()
