"""Measuring from Python, in a notebook and out of one; little, and on a CPU."""

from inspect import signature
from pathlib import Path
from typing import Any, ClassVar

import nbclient
import nbformat
import torch
from nbformat import NotebookNode

import layerscope
from layerscope import CallableOptions, Run
from layerscope.runner import foreign

CELL = """\
import layerscope, torch
options = layerscope.CallableOptions(
    output={output!r}, samples=24, passes=3, captures=1, recorder="none",
    time_budget_s=5,
)
layerscope.profile({{"base": torch.relu}}, [torch.ones(4)], options=options)
"""


class Heard:
    """A progress that keeps the names of phases."""

    def __init__(self) -> None:
        """None yet."""
        self.phases: list[str] = []

    def phase(self, name: str, total: int) -> None:
        """Keep it."""
        del total
        self.phases.append(name)

    def advance(self, steps: int = 1) -> None:
        """Do nothing."""


def test_the_signature_is_that_of_the_runner() -> None:
    """Nothing is declared twice that could drift apart."""
    assert signature(layerscope.profile) == signature(foreign.profile)
    assert layerscope.profile.__doc__ == foreign.profile.__doc__


def test_what_is_returned_can_be_looked_at(tmp_path: Path) -> None:
    """A run with a face; progress of the caller's own is used as it is."""
    heard = Heard()
    options = CallableOptions(
        output=tmp_path / "run",
        samples=24,
        passes=3,
        captures=1,
        recorder="none",
        time_budget_s=5,
        progress=heard,
    )
    run = layerscope.profile({"base": torch.relu}, [torch.ones(4)], options=options)
    assert isinstance(run, Run)
    assert heard.phases == ["comparing arms", "anchors, capture 1 of 1"]


class Watched(nbclient.NotebookClient):
    """Runs a notebook, and keeps the HTML of every output that replaces another."""

    replaced: ClassVar[list[str]] = []

    def process_message(
        self, msg: dict[str, Any], cell: NotebookNode, cell_index: int
    ) -> NotebookNode | None:
        """Keep it, and go on."""
        if msg["msg_type"] == "update_display_data":
            self.replaced.append(msg["content"]["data"].get("text/html", ""))
        return super().process_message(msg, cell, cell_index)


def test_a_notebook_shows_progress_and_then_the_report(tmp_path: Path) -> None:
    """Bars come and go in the cell's output; what stays is the run."""
    cell = nbformat.v4.new_code_cell(CELL.format(output=str(tmp_path / "run")))
    notebook = nbformat.v4.new_notebook(cells=[cell])
    Watched(notebook, timeout=120, kernel_name="python3").execute()
    assert any("<progress value=" in html for html in Watched.replaced)
    first, last = cell.outputs
    assert first.data["text/html"] == ""
    assert "<table" in last.data["text/html"]
