import io
import sys

import pytest

from layerscope.progress import SilentProgress
from layerscope.render.progress import NotebookProgress, progress_here, progress_on


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_a_terminal_sees_phases() -> None:
    """The phase and its count are written to a terminal, brackets and all."""
    stream = Terminal()
    with progress_on(stream, "much [work]") as progress:
        progress.advance()
        progress.phase("warm up", 1)
        progress.phase("[fused] anchors", 4)
        progress.advance(3)
    assert stream.getvalue().count("much [work]") == 1
    assert "[fused] anchors" in stream.getvalue()
    assert "3/4" in stream.getvalue()


def test_anything_else_gets_one_line() -> None:
    """A file or a pipe is told what is made as it begins, and nothing of progress."""
    stream = io.StringIO()
    with progress_on(stream, "much [work]") as progress:
        assert stream.getvalue() == ""
        progress.phase("weights", 1)
        progress.phase("anchors", 4)
        progress.advance(4)
    assert stream.getvalue() == "much [work]\n"


def test_without_an_opening_only_a_terminal_is_told() -> None:
    """Reading is no more than progress: a file or a pipe gets nothing of it."""
    file, terminal = io.StringIO(), Terminal()
    for stream in (file, terminal):
        with progress_on(stream) as progress:
            progress.phase("reading a.json", 4)
            progress.advance(4)
    assert file.getvalue() == ""
    assert "reading a.json" in terminal.getvalue()


def test_work_that_does_not_begin_is_not_announced() -> None:
    """What is refused before the first phase leaves the stream to the error."""
    stream = io.StringIO()
    with progress_on(stream, "much work"):
        pass
    assert stream.getvalue() == ""


def test_a_notebook_sees_phases_and_their_bars() -> None:
    """Each phase replaces the one before; names are text, not HTML."""
    shown: list[str] = []
    progress = NotebookProgress(shown.append)
    progress.phase("<b> warm up", 2)
    progress.phase("anchors", 4)
    progress.advance(4)
    assert shown == [
        '&lt;b&gt; warm up <progress value="0" max="2"></progress> 0/2',
        'anchors <progress value="0" max="4"></progress> 0/4',
        'anchors <progress value="4" max="4"></progress> 4/4, 0:00 left',
    ]


def test_a_notebook_is_not_flooded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps that follow each other fast are shown together; the estimate is linear."""
    clock_s = 100.0
    monkeypatch.setattr("layerscope.render.progress.time.monotonic", lambda: clock_s)
    shown: list[str] = []
    progress = NotebookProgress(shown.append)
    progress.phase("anchors", 100)
    progress.advance(10)
    assert len(shown) == 1
    clock_s = 110.0
    progress.advance(10)
    assert shown[-1].endswith(" 20/100, 0:40 left")
    clock_s = 200.0
    progress.advance()
    assert shown[-1].endswith(" 21/100, 6:16 left")


def test_here_is_silent_where_nobody_looks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A script whose output goes to a file writes nothing of progress."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_here() as progress:
        progress.phase("anchors", 4)
        progress.advance(4)
    assert isinstance(progress, SilentProgress)
    assert stream.getvalue() == capsys.readouterr().out == ""


def test_here_is_the_terminal_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever measures in an interpreter sees the same bar as on the command line."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress_here() as progress:
        progress.phase("anchors", 4)
        progress.advance(3)
    assert "3/4" in stream.getvalue()
