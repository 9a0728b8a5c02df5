import io

from layerscope.progress import SilentProgress
from layerscope.render.progress import progress_on


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Say so."""
        return True


def test_a_terminal_sees_phases_and_notes() -> None:
    """The phase, its count and every note are written to a terminal."""
    stream = Terminal()
    with progress_on(stream) as progress:
        progress.advance()
        progress.phase("[warm] up", 1)
        progress.phase("anchors", 4)
        progress.advance(3)
        progress.note("[fused] is built")
    assert "anchors" in stream.getvalue()
    assert "3/4" in stream.getvalue()
    assert "[fused] is built" in stream.getvalue()


def test_anything_else_sees_nothing() -> None:
    """A file or a pipe gets not a single character."""
    stream = io.StringIO()
    with progress_on(stream) as progress:
        assert isinstance(progress, SilentProgress)
        progress.phase("anchors", 4)
        progress.note("done")
    assert stream.getvalue() == ""
