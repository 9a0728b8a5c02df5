import pytest

from layerscope.progress import Progress, SilentProgress


def test_silence_is_silent(capfd: pytest.CaptureFixture[str]) -> None:
    """A silent progress takes all that a shown one takes, and writes nothing."""
    progress: Progress = SilentProgress()
    progress.phase("anchors", 10)
    progress.advance()
    progress.advance(3)
    assert capfd.readouterr() == ("", "")
