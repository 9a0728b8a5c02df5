"""Lets links of README and docs/ hold on the site as they do in the checkout.

A hook of MkDocs. Pages are written for a reader of the checkout: they link to files
beside and above docs/. On the site

- documents of `OUTSIDE` are pages below ``repository/``, and links lead there;
- a link to any other file of the checkout is a link into the repository where
  ``repo_url`` is set, as in ``repo_url: https://HOST/OWNER/NAME``, and else its text;
- a link to what is not there stays as it is, and MkDocs, which checks it, complains.
"""

import posixpath
import re
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent

DOCS: Final = "docs"
SHOWN_BELOW: Final = "repository"

OUTSIDE: Final = (
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "backends/torch_compile/NOTES.md",
    "backends/torch_compile/README.md",
    "fixtures/README.md",
)
"""Documents outside docs/ that are pages of the site, from the root of the checkout."""

_LINK: Final = re.compile(r"(?<!!)\[(?P<text>[^][]*)\]\((?P<target>[^()\s]+)\)")
_FENCED: Final = re.compile(r"^(```.*?^```$)", flags=re.DOTALL | re.MULTILINE)


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the documents of `OUTSIDE` to the site."""
    for name in OUTSIDE:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, f"{SHOWN_BELOW}/{name}", content=text))
    return files


def on_page_markdown(
    markdown: str, *, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Turn the links of a page into those of the site."""
    del files
    return relinked(markdown, page.file.src_uri, config.repo_url or "")


def relinked(markdown: str, page: str, repository: str) -> str:
    """`markdown` with its links, but not those in code, as they are on the site.

    Args:
        markdown: the text of a document.
        page: where the site has it, such as ``repository/README.md``.
        repository: address of the repository; empty where it has none.
    """

    def link(match: re.Match[str]) -> str:
        target = _on_site(match["target"], page, repository)
        return f"[{match['text']}]({target})" if target else match["text"]

    parts = _FENCED.split(markdown)
    parts[::2] = (_LINK.sub(link, part) for part in parts[::2])
    return "".join(parts)


def _on_site(target: str, page: str, repository: str) -> str:
    """The target of a link as it is on the site; empty where it cannot be one."""
    scheme, host, path, _, anchor = urlsplit(target)
    if scheme or host or not path:
        return target
    origin = page.removeprefix(f"{SHOWN_BELOW}/") if _is_outside(page) else page
    folder = "" if _is_outside(page) else DOCS
    name = posixpath.normpath(posixpath.join(folder, posixpath.dirname(origin), path))
    shown = f"{SHOWN_BELOW}/{name}" if name in OUTSIDE else _within_docs(name)
    if shown:
        relative = posixpath.relpath(shown, posixpath.dirname(page) or ".")
        return f"{relative}#{anchor}" if anchor else relative
    if name.startswith("..") or not (ROOT / name).exists():
        return target
    return f"{repository.rstrip('/')}/blob/HEAD/{name}" if repository else ""


def _is_outside(page: str) -> bool:
    return page.startswith(f"{SHOWN_BELOW}/")


def _within_docs(name: str) -> str:
    """`name` from docs/, or nothing where it is not there."""
    return name.removeprefix(f"{DOCS}/") if name.startswith(f"{DOCS}/") else ""
