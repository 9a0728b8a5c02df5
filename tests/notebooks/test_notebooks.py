"""The notebooks run as they are, show what they say, and are kept without outputs.

What they show is on pages of docs/notebooks; these are up to date.
"""

import ast
import re
from pathlib import Path

import nbformat
import pytest
from nbformat import NotebookNode

from tools import notebook_pages

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
PAGE = ROOT / "docs" / "writing-a-backend.md"
BACKEND = "03_write_a_backend"

CHART = "vega-embed"
"""What altair's HTML of a chart has, and no table."""

LOGIC = (ast.For, ast.While, ast.If, ast.Try, ast.IfExp, ast.Lambda, ast.comprehension)

named = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> NotebookNode:
    """The notebook at `path`."""
    notebook: NotebookNode = nbformat.read(path, as_version=4)
    return notebook


def sources(notebook: NotebookNode) -> list[str]:
    """The text of every cell of code."""
    return [cell.source for cell in notebook.cells if cell.cell_type == "code"]


def shown(notebook: NotebookNode) -> list[dict[str, str]]:
    """What the cells show, by type of data."""
    return [
        output.data
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
        if "data" in output
    ]


def test_there_are_four() -> None:
    """One to measure, one to understand, one to build, one for who has a trace."""
    assert [path.stem for path in NOTEBOOKS] == [
        "01_profile_a_layer",
        "02_why_is_it_faster",
        BACKEND,
        "04_read_your_own_trace",
    ]


@named
def test_it_runs_and_shows_what_it_made(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No cell fails, on a machine without a GPU; charts are drawn, runs are told.

    Its page shows the same, but for what is measured anew each time: `make notebooks`.
    """
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    notebook = notebook_pages.executed(path)
    html = [data.get("text/html", "") for data in shown(notebook)]
    wanted = sum(source.count(".plot.") for source in sources(notebook))
    saved = sum(source.count(".save(") for source in sources(notebook))
    assert len([text for text in html if CHART in text]) == wanted - saved
    assert any("<table" in text for text in html)
    page = notebook_pages.Page(path.stem).text(notebook)
    kept = (notebook_pages.PAGES / f"{path.stem}.md").read_text(encoding="utf-8")
    assert notebook_pages.steady(page) == notebook_pages.steady(kept)


@named
def test_it_is_kept_without_outputs(path: Path) -> None:
    """What a cell shows depends on who ran it, and belongs into no history."""
    for cell in read(path).cells:
        assert set(cell.metadata) == set()
        if cell.cell_type == "code":
            assert (cell.outputs, cell.execution_count) == ([], None)


@named
def test_it_has_no_logic(path: Path) -> None:
    """What can go wrong is in the library, where it is tested."""
    own = sources(read(path))
    if path.stem == BACKEND:
        own = own[1:]  # the backend of the page
    assert [
        ast.unparse(node)
        for source in own
        for node in ast.walk(ast.parse(source))
        if isinstance(node, LOGIC)
    ] == []


def test_the_backend_is_that_of_the_page() -> None:
    """Notebook and page show one backend, which the tests of the page install."""
    (backend,) = re.findall(
        r"```python\n# fused_o_proj\.py\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL
    )
    assert sources(read(FOLDER / f"{BACKEND}.ipynb"))[0] == backend.strip()
