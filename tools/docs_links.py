"""Lets links of README and docs/ hold on the site as they do in the checkout.

A hook of MkDocs. Pages are written for a reader of the checkout: they link to files
beside and above docs/. On the site

- documents of `OUTSIDE` are pages below ``repository/``, and links lead there;
- pictures in docs/ are shown wherever they are named, in HTML tags too;
- a link to any other file of the checkout is a link into the repository where
  ``repo_url`` is set, as in ``repo_url: https://HOST/OWNER/NAME``, and else its text;
- a link to what is not there, or a picture from elsewhere, stays as it is, and MkDocs,
  which checks it, complains. It checks no HTML tags, so this hook does.
"""

import logging
import posixpath
import re
from collections.abc import Iterator
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
    "backends/nvidia_mega/NOTES.md",
    "backends/nvidia_mega/README.md",
    "backends/standard/NOTES.md",
    "backends/standard/README.md",
    "backends/torch_compile/NOTES.md",
    "backends/torch_compile/README.md",
    "fixtures/README.md",
)
"""Documents outside docs/ that are pages of the site, from the root of the checkout."""

_LINK: Final = re.compile(
    r"(?P<picture>!?)\[(?P<text>[^][]*)\]\((?P<target>[^()\s]+)\)"
)
_TAG: Final = re.compile(
    r"(?P<head><(?:img|source)\b[^>]*?\bsrc(?:set)?=\")(?P<target>[^\"\s]+)(?=\")"
)
_FENCED: Final = re.compile(r"^(```.*?^```$)", flags=re.DOTALL | re.MULTILINE)

_log: Final = logging.getLogger(
    "mkdocs.hooks.docs_links"
)  # a strict build counts these


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add the documents of `OUTSIDE` to the site."""
    for name in OUTSIDE:
        text = (ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, f"{SHOWN_BELOW}/{name}", content=text))
    return files


def on_page_markdown(
    markdown: str, *, page: Page, config: MkDocsConfig, files: Files
) -> str:
    """Turn the links of a page into those of the site, and complain of lost pictures.

    A warning fails a strict build.
    """
    source = page.file.src_uri
    text = relinked(markdown, source, config.repo_url or "")
    for target in pictures_in_tags(text):
        name = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        if files.get_file_from_path(name) is None:
            _log.warning("%s shows a picture that is not there: %s", source, target)
    return text


def pictures_in_tags(markdown: str) -> Iterator[str]:
    """The files that HTML tags of a page show, from its folder on the site."""
    for part in _FENCED.split(markdown)[::2]:
        for match in _TAG.finditer(part):
            if _is_file(match["target"]):
                yield match["target"]


def relinked(markdown: str, page: str, repository: str) -> str:
    """`markdown` with its links, but not those in code, as they are on the site.

    Args:
        markdown: the text of a document.
        page: where the site has it, such as ``repository/README.md``.
        repository: address of the repository; empty where it has none.
    """

    def link(match: re.Match[str]) -> str:
        text, target = match["text"], match["target"]
        if match["picture"]:
            return f"![{text}]({_shown(target, page) or target})"
        target = _on_site(target, page, repository)
        return f"[{text}]({target})" if target else text

    def tag(match: re.Match[str]) -> str:
        return match["head"] + (_shown(match["target"], page) or match["target"])

    parts = _FENCED.split(markdown)
    parts[::2] = (_TAG.sub(tag, _LINK.sub(link, part)) for part in parts[::2])
    return "".join(parts)


def _is_file(target: str) -> bool:
    """Whether it is neither an address nor an anchor."""
    scheme, host, path, _, _ = urlsplit(target)
    return bool(path and not scheme and not host)


def _on_site(target: str, page: str, repository: str) -> str:
    """The target of a link as it is on the site; empty where it cannot be one."""
    shown = _shown(target, page)
    if shown or not _is_file(target):
        return shown or target
    name = _in_checkout(target, page)
    if name.startswith("..") or not (ROOT / name).exists():
        return target
    return f"{repository.rstrip('/')}/blob/HEAD/{name}" if repository else ""


def _shown(target: str, page: str) -> str:
    """Where the site has a file, from the page; empty where it has it not."""
    if not _is_file(target):
        return ""
    name = _in_checkout(target, page)
    shown = f"{SHOWN_BELOW}/{name}" if name in OUTSIDE else _within_docs(name)
    if not shown:
        return ""
    anchor = urlsplit(target).fragment
    relative = posixpath.relpath(shown, posixpath.dirname(page) or ".")
    return f"{relative}#{anchor}" if anchor else relative


def _in_checkout(target: str, page: str) -> str:
    """The file that a document of the site names, from the root of the checkout."""
    origin = page.removeprefix(f"{SHOWN_BELOW}/") if _is_outside(page) else page
    folder = "" if _is_outside(page) else DOCS
    path = urlsplit(target).path
    return posixpath.normpath(posixpath.join(folder, posixpath.dirname(origin), path))


def _is_outside(page: str) -> bool:
    return page.startswith(f"{SHOWN_BELOW}/")


def _within_docs(name: str) -> str:
    """`name` from docs/, or nothing where it is not there."""
    return name.removeprefix(f"{DOCS}/") if name.startswith(f"{DOCS}/") else ""
