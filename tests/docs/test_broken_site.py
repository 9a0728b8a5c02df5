"""What is broken in the documents fails the build of their site."""

import logging
import shutil
from pathlib import Path

import pytest

pytest.importorskip("mkdocs", reason="mkdocs is not installed")

from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.exceptions import Abort

from tools.docs_links import OUTSIDE

ROOT = Path(__file__).resolve().parents[2]
HOOK = Path("tools", "docs_links.py")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small one, with the settings of ours, and nothing broken."""
    pages = ["index.md", "other.md", *(f"repository/{name}" for name in OUTSIDE)]
    nav = "".join(f"  - {page}\n" for page in pages)
    files = dict.fromkeys(OUTSIDE, "# Words\n\n[back](#words)\n") | {
        "mkdocs.yml": f"INHERIT: {ROOT / 'mkdocs.yml'}\nplugins: []\nnav:\n{nav}",
        "docs/index.md": "# Start\n\n[on](other.md#there) ![](images/x.svg)\n",
        "docs/other.md": "# Other\n\n## There\n\n[up](../README.md)\n",
        "docs/site.css": "",
        "docs/images/x.svg": '<svg xmlns="http://www.w3.org/2000/svg"/>',
        "README.md": '# Read\n\n![](docs/images/x.svg)<img src="docs/images/x.svg">\n',
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    (tmp_path / HOOK.parent).mkdir()
    shutil.copy(ROOT / HOOK, tmp_path / HOOK)
    return tmp_path


def test_whole_documents_build(checkout: Path) -> None:
    """The pictures of the README are found by its page."""
    build_strictly(checkout)
    readme = (checkout / "site" / "repository" / "index.html").read_text("utf-8")
    assert readme.count('src="../images/x.svg"') == 2


@pytest.mark.parametrize(
    ("name", "broken", "complaint"),
    [
        ("docs/index.md", "[a](missing.md)", "'missing.md'"),
        ("docs/index.md", "[a](other.md#nowhere)", "anchor '#nowhere'"),
        ("docs/index.md", "![a](images/none.png)", "'images/none.png'"),
        ("docs/other.md", "[a](../NONE.md)", "'../NONE.md'"),
        ("README.md", "[a](docs/missing.md)", "'../missing.md'"),
        ("README.md", "![a](docs/images/none.png)", "'../images/none.png'"),
        ("README.md", '<img src="docs/none.png">', "not there: ../none.png"),
        ("docs/index.md", '<img alt="" src="none.png">', "not there: none.png"),
    ],
)
def test_what_is_broken_fails(
    checkout: Path,
    caplog: pytest.LogCaptureFixture,
    name: str,
    broken: str,
    complaint: str,
) -> None:
    """One link, anchor or picture to nothing ends the build, and is named."""
    with (checkout / name).open("a", encoding="utf-8") as document:
        document.write(f"\n{broken}\n")
    with pytest.raises(Abort):
        build_strictly(checkout)
    warnings = [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING
    ]
    assert len(warnings) == 1
    assert complaint in warnings[0]


def test_a_page_out_of_the_nav_fails(checkout: Path) -> None:
    """No page is written that nobody can reach."""
    (checkout / "docs" / "lost.md").write_text("# Lost\n", encoding="utf-8")
    with pytest.raises(Abort):
        build_strictly(checkout)


def build_strictly(checkout: Path) -> None:
    """As `make docs` does."""
    build(load_config(str(checkout / "mkdocs.yml"), strict=True))
