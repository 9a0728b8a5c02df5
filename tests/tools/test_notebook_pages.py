import json

import pytest
from nbformat import NotebookNode
from nbformat.v4 import (
    new_code_cell,
    new_markdown_cell,
    new_notebook,
    new_output,
)

pytest.importorskip("vl_convert", reason="vl-convert is not installed")

from tools.notebook_pages import Json, Page, digest, steady


def chart(value: float, name: str = "0" * 32) -> Json:
    """The specification of a chart of one number, with a data set of some name."""
    return {
        "$schema": "anything",
        "title": {"text": "times"},
        "layer": [{"data": {"name": f"data-{name}"}}],
        "datasets": {f"data-{name}": [{"x": value}]},
    }


def displayed(html: str) -> NotebookNode:
    """What a cell gives that shows HTML."""
    data = {"text/html": html, "text/plain": "<object>"}
    shown: NotebookNode = new_output("execute_result", data=data)
    return shown


def test_a_page_has_cells_and_what_they_show() -> None:
    """Text, code, prints and values follow each other; links lead from docs/."""
    code = new_code_cell("print(1)\n2")
    code.outputs = [
        new_output("stream", text="1\n"),
        new_output("execute_result", data={"text/plain": "2"}),
        displayed(""),  # progress that has ended
    ]
    cells = [new_markdown_cell("see [it](../docs/gate.md), [x](../README.md)"), code]
    assert Page("n").text(new_notebook(cells=cells)) == (
        "<!-- Made of notebooks/n.ipynb by tools/notebook_pages.py. -->\n\n"
        "see [it](../gate.md), [x](../../README.md)\n\n"
        "```python\nprint(1)\n2\n```\n\n```text\n1\n```\n\n```text\n2\n```\n"
    )


def test_tables_lose_their_styles() -> None:
    """What is left of a table's looks is on which side its cells stand."""
    code = new_code_cell("table")
    code.outputs = [
        displayed(
            "<style>p {}</style>\n<table style='x'>"
            '<tr><td style="text-align:right;a:b">1</td><td style="text-align:left">'
            "a</td></tr>\n\n</table>".replace("'", '"')
        )
    ]
    assert (
        Page("n")
        .text(new_notebook(cells=[code]))
        .endswith(
            '<div class="output">\n'
            '<table><tr><td align="right">1</td><td>a</td></tr>\n</table>\n</div>\n'
        )
    )


def test_charts_and_drawings_are_files() -> None:
    """A chart is a picture named by what it shows, a drawing one by its cell."""
    spec = chart(1.5)
    code = new_code_cell("plot")
    code.outputs = [
        displayed(f'<div class="vega-embed"/>(f{{}})({json.dumps(spec)}, {{"a": 1}})'),
        displayed("<p>b</p><svg><g/></svg>"),
    ]
    page = Page("n")
    text = page.text(new_notebook(cells=[code]))
    name = f"n-{digest(spec)}.png"
    assert f"\n![times](images/{name})\n" in text
    assert '<img alt="" src="images/n-0.svg">' in text
    assert page.charts == {name: spec}
    assert page.drawings == {"n-0.svg": "<svg><g/></svg>"}


def test_equal_charts_have_equal_names() -> None:
    """Digits that hang on the order of additions, and names of data, make none."""
    assert digest(chart(0.1 + 0.2)) == digest(chart(0.3, "f" * 32))
    assert digest(chart(0.3)) != digest(chart(0.31))


def test_what_was_measured_is_not_steady() -> None:
    """From the cell that measures on, outputs are left out of the comparison."""
    cells = [new_code_cell("layerscope.profile(arms)"), new_code_cell("after")]
    for cell in cells:
        cell.outputs = [new_output("stream", text="3 ms")]
    page = Page("n").text(new_notebook(cells=cells))
    assert "3 ms" in page
    assert "3 ms" not in steady(page)
    assert "after" in steady(page)


def test_last_digits_are_not_steady() -> None:
    """Long numbers are equal where their first six digits are, short ones as told."""
    assert steady("low=-1.0000001, 2.5") == steady("low=-1.00000009999, 2.5")
    assert steady("low=-1.0000001") != steady("low=-1.0001001")
    assert steady("2.55") != steady("2.5")
