"""The documentation site builds strictly, is whole, and asks nothing of other hosts."""

import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import layerscope
from layerscope import testing

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"

pytest.importorskip("mkdocs", reason="mkdocs is not installed")


class Quiet(SimpleHTTPRequestHandler):
    """Serves files and says nothing of it."""

    def log_message(self, *_: Any) -> None:  # noqa: ANN401 (whatever it would say)
        """Do not print."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does."""
    folder = tmp_path_factory.mktemp("site")
    subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        check=True,
    )
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where a server on this machine has the site."""
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def targets(entry: object) -> Iterator[str]:
    """Every page in a part of the nav."""
    if isinstance(entry, str):
        yield entry
    elif isinstance(entry, dict):
        for each in entry.values():
            yield from targets(each)
    elif isinstance(entry, list):
        for each in entry:
            yield from targets(each)


def references(page: str) -> set[str]:
    """What a page of the reference takes from docstrings."""
    text = (DOCS / "reference" / f"{page}.md").read_text(encoding="utf-8")
    return set(re.findall(r"^::: (\S+)$", text, flags=re.MULTILINE))


def test_every_page_is_in_the_nav() -> None:
    """What stands in docs/ can be reached, once."""
    from mkdocs.config import load_config  # noqa: PLC0415 (it may not be installed)

    shown = list(targets(load_config(str(ROOT / "mkdocs.yml")).nav))
    pages = {str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")}
    assert len(shown) == len(set(shown))
    assert pages <= set(shown)


def test_every_public_name_is_in_the_reference() -> None:
    """The API reference has all that `layerscope` and `layerscope.testing` export."""
    documented = {name.rpartition(".")[2] for name in references("layerscope")}
    assert documented == {*layerscope.__all__} - {"__version__"} | {"Plots"}
    assert references("testing") == {
        f"layerscope.testing.{name}" for name in testing.__all__
    }
    assert "layerscope.plugin" in references("plugin")


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    """No page names a script, style, font or picture on another host."""
    loads = re.compile(
        r"<(?:script|link|img|iframe)\b[^>]*(?:src|href)=\"(https?:[^\"]+)"
    )
    assert {
        path.name: found
        for path in site.rglob("*.html")
        if (found := loads.findall(path.read_text(encoding="utf-8")))
    } == {}


def test_links_out_of_docs_lead_somewhere(site: Path) -> None:
    """A document beside docs/ is a page, whose links to docs lead back."""
    ledger = (site / "gate.html").read_text(encoding="utf-8")
    readme = (site / "repository" / "index.html").read_text(encoding="utf-8")
    assert 'href="repository/fixtures/index.html"' in ledger
    assert '<a href="../accuracy.html">' in readme


def test_the_reference_tells_fields_and_signatures(site: Path) -> None:
    """Docstrings, signatures, and comments behind fields are on the page."""
    page = (site / "reference" / "layerscope.html").read_text(encoding="utf-8")
    words = re.sub(r"<[^>]+>", "", page)
    assert "tokens already in the KV cache, of every request" in words
    assert "An edited graph failed on the device" in words
    assert 'id="layerscope.Run.compare"' in page


def test_it_opens_in_a_browser(address: str, chromium: "Browser") -> None:
    """Pages make no error, ask no other host, and their search finds words."""
    context = chromium.new_context()
    page = context.new_page()
    page.set_default_timeout(90_000)  # the search index is built in the page
    complaints: list[str] = []
    requests: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.on(
        "console",
        lambda said: complaints.append(said.text) if said.type == "error" else None,
    )
    for name in ("index", "ledger", "notebooks/02_why_is_it_faster"):
        page.goto(f"{address}/{name}.html")
        page.locator("article h1").wait_for()
        assert_pictures_are_drawn(page)
    # What is typed before the page listens is lost.
    state = page.locator(".md-search-result__meta")
    state.filter(has_not_text="Initializing").wait_for(state="attached")
    page.get_by_role("textbox", name="Search").press_sequentially("noise floor")
    page.locator(".md-search-result__link").first.wait_for()
    context.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith((address, "data:"))] == []


def assert_pictures_are_drawn(page: "Page") -> None:
    """No picture of the page is missing."""
    widths = page.locator("article img").evaluate_all(
        "all => all.map(each => each.naturalWidth)"
    )
    assert all(widths)
