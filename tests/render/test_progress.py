import io

from layerscope.render.progress import progress_on


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


def test_work_that_does_not_begin_is_not_announced() -> None:
    """What is refused before the first phase leaves the stream to the error."""
    stream = io.StringIO()
    with progress_on(stream, "much work"):
        pass
    assert stream.getvalue() == ""
