"""Writes the pages of docs/notebooks anew: the notebooks with what they show.

Usage: ``python tools/notebook_pages.py``, in about a minute. A test, which runs the
notebooks anyway, fails where a page is not up to date. It skips what was measured while
a page was made, which no two machines measure alike; pages mark it.
"""

import hashlib
import json
import os
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, Final, TypeAlias

import nbclient
import nbformat
import vl_convert
from nbformat import NotebookNode

ROOT: Final = Path(__file__).resolve().parent.parent
NOTEBOOKS: Final = sorted((ROOT / "notebooks").glob("*.ipynb"))
PAGES: Final = ROOT / "docs" / "notebooks"
IMAGES: Final = "images"

TIMEOUT_S: Final = 120
SCALE: Final = 1.5  # pixels of a picture for one of the chart
COLOURS: Final = 64

Json: TypeAlias = dict[str, Any]

_MEASURES: Final = "layerscope.profile("
_MEASURED: Final = "<!-- measured on the machine that made this page -->"
_END: Final = "<!-- end -->"
_STEADY: Final = re.compile(f"{_MEASURED}.*?{_END}", flags=re.DOTALL)

_CHART: Final = re.compile(r"vega-embed.*\}\)\((?=\{)", flags=re.DOTALL)
_STYLES: Final = re.compile(r"<style>.*?</style>", flags=re.DOTALL)
_DRAWING: Final = re.compile(r"<svg.*?</svg>", flags=re.DOTALL)
_ALIGNED: Final = re.compile(r' style="[^"]*text-align: ?(left|right)[^"]*"')
_STYLED: Final = re.compile(r' style="[^"]*"')
_LINK: Final = re.compile(r"\]\((?P<target>\.\./[^()\s]+)\)")
_DATA_SET: Final = re.compile(r"data-[0-9a-f]{32}")
_LONG: Final = re.compile(r"\d+\.\d{5,}")
_DIGITS: Final = 6


@dataclass(frozen=True)
class Page:
    """One notebook as Markdown, and the pictures in it."""

    name: str
    """Of the notebook, without its ending."""

    charts: dict[str, Json] = field(default_factory=dict)
    """Specifications of Vega-Lite, by the file of the picture."""

    drawings: dict[str, str] = field(default_factory=dict)
    """SVG, by the file of the picture."""

    def text(self, notebook: NotebookNode) -> str:
        """The page of a notebook that was run; notes its pictures."""
        return "\n\n".join((self._origin(), *self._cells(notebook))) + "\n"

    def _origin(self) -> str:
        source = f"notebooks/{self.name}.ipynb"
        return f"<!-- Made of {source} by tools/notebook_pages.py. -->"

    def _cells(self, notebook: NotebookNode) -> Iterator[str]:
        measured = False
        for number, cell in enumerate(notebook.cells):
            if cell.cell_type == "markdown":
                yield _LINK.sub(_from_pages, cell.source)
                continue
            yield f"```python\n{cell.source}\n```"
            measured |= _MEASURES in cell.source
            shown = [
                text for each in cell.outputs if (text := self._output(each, number))
            ]
            if shown:
                yield from (_MEASURED, *shown, _END) if measured else shown

    def _output(self, output: NotebookNode, cell: int) -> str:
        """What a cell shows, as Markdown; empty of nothing."""
        if output.output_type == "stream":
            return f"```text\n{output.text.rstrip()}\n```"
        html: str = output.data.get("text/html", "")
        chart = _CHART.search(html)
        if chart:
            return self._chart(html[chart.end() :])
        if html:
            return self._table(html, cell)
        if "text/html" in output.data:  # progress, which has ended
            return ""
        return f"```text\n{output.data['text/plain']}\n```"

    def _chart(self, script: str) -> str:
        spec, _ = json.JSONDecoder().raw_decode(script)
        title = spec["title"]["text"]
        file = f"{self.name}-{digest(spec)}.png"
        self.charts[file] = spec
        return f"![{title}]({IMAGES}/{file})"

    def _table(self, html: str, cell: int) -> str:
        """HTML without styles, which few pages may bring; its drawings are files."""
        plain = _STYLES.sub("", html)
        for drawing in _DRAWING.findall(plain):
            file = f"{self.name}-{cell}.svg"
            self.drawings[file] = drawing
            plain = plain.replace(drawing, f'<img alt="" src="{IMAGES}/{file}">')
        plain = _STYLED.sub("", _ALIGNED.sub(_align, plain))
        lines = filter(None, (line.strip() for line in plain.splitlines()))
        return "\n".join(('<div class="output">', *lines, "</div>"))


def _align(match: re.Match[str]) -> str:
    return ' align="right"' if match[1] == "right" else ""


def _from_pages(match: re.Match[str]) -> str:
    """A link from notebooks/ as one from docs/notebooks/."""
    target = posixpath.normpath(f"notebooks/{match['target']}")
    return f"]({posixpath.relpath(target, 'docs/notebooks')})"


def digest(spec: Json) -> str:
    """A name for what a chart shows: equal charts have equal ones, on any machine."""
    drawn = {key: value for key, value in spec.items() if key != "$schema"}
    text = json.dumps(_rounded(drawn))
    for number, name in enumerate(dict.fromkeys(_DATA_SET.findall(text))):
        text = text.replace(name, f"data-{number}")  # altair has a hash of all digits
    text = json.dumps(json.loads(text), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _rounded(value: Any) -> Any:  # noqa: ANN401 (whatever JSON may hold)
    """`value` without the digits that depend on the order of additions."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return float(f"{value:.{_DIGITS - 1}e}") if isinstance(value, float) else value


def executed(path: Path) -> NotebookNode:
    """The notebook at `path` after all its cells were run in their folder."""
    notebook: NotebookNode = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
    ).execute()
    return notebook


def steady(text: str) -> str:
    """A page without what differs each time it is made.

    That is what was measured meanwhile, and digits that hang on the order of additions.
    """
    kept = _STEADY.sub("", text)
    return _LONG.sub(lambda number: f"{float(number[0]):.{_DIGITS - 1}e}", kept)


def write(page: Page, notebook: NotebookNode) -> None:
    """Write the page of a notebook that was run, and its pictures in place of older."""
    folder = PAGES / IMAGES
    folder.mkdir(parents=True, exist_ok=True)
    (PAGES / f"{page.name}.md").write_text(page.text(notebook), encoding="utf-8")
    for old in folder.glob(f"{page.name}-*"):
        old.unlink()
    for file, spec in page.charts.items():
        (folder / file).write_bytes(_picture(spec))
    for file, drawing in page.drawings.items():
        (folder / file).write_text(drawing + "\n", encoding="utf-8")


def _picture(spec: Json) -> bytes:
    """The chart as a PNG of few colours, a tenth as large as one of all."""
    from PIL import Image  # noqa: PLC0415 (tests read this module without it)

    drawn = vl_convert.vegalite_to_png(spec, scale=SCALE)
    small = BytesIO()
    with Image.open(BytesIO(drawn)) as image:
        image.convert("RGB").quantize(COLOURS).save(small, "PNG", optimize=True)
    return small.getvalue()


def main() -> None:
    """Run every notebook, and write its page."""
    paths = filter(None, (str(ROOT), os.environ.get("PYTHONPATH", "")))
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # of the kernels
    for path in NOTEBOOKS:
        write(Page(path.stem), executed(path))


if __name__ == "__main__":
    main()
