import io

from layerscope.progress import SilentProgress
from layerscope.render.progress import progress_on


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_a_terminal_sees_phases() -> None:
    """The phase and its count are written to a terminal, brackets and all."""
    stream = Terminal()
    with progress_on(stream) as progress:
        progress.advance()
        progress.phase("warm up", 1)
        progress.phase("[fused] anchors", 4)
        progress.advance(3)
    assert "[fused] anchors" in stream.getvalue()
    assert "3/4" in stream.getvalue()


def test_anything_else_sees_nothing() -> None:
    """A file or a pipe gets not a single character."""
    stream = io.StringIO()
    with progress_on(stream) as progress:
        assert isinstance(progress, SilentProgress)
        progress.phase("anchors", 4)
    assert stream.getvalue() == ""
