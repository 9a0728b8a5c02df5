import io
import sys

import pytest

from layerscope.cli.streams import abandon_stdout, forgive_encoding, tell


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [
        ("ascii", b"-0.3 us, 1 x 2, 1~2 --, 3  C, ? ?"),
        ("latin-1", b"-0.3 \xb5s, 1 \xd7 2, 1~2 --, 3 \xb0C, ? ?"),
        ("utf-8", "−0.3 µs, 1 × 2, 1…2 –─, 3 °C, 層 ?".encode()),
    ],
)
def test_signs_that_an_encoding_lacks_have_plain_ones(
    monkeypatch: pytest.MonkeyPatch, encoding: str, printed: bytes
) -> None:
    """A minus stays a minus, widths stay, and anything else is a question mark."""
    files = {"stdout": io.BytesIO(), "stderr": io.BytesIO()}
    for name, file in files.items():
        monkeypatch.setattr(sys, name, io.TextIOWrapper(file, encoding=encoding))
    forgive_encoding()
    for stream in (sys.stdout, sys.stderr):
        stream.write("−0.3 µs, 1 × 2, 1…2 –─, 3 °C, 層 \udcff")
        stream.flush()
    assert [file.getvalue() for file in files.values()] == [printed, printed]


def test_streams_that_are_no_text_files_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever put another stream there knows what it takes."""
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    forgive_encoding()
    abandon_stdout()
    assert sys.stdout is stream


def test_a_closed_standard_error_takes_lines_to_nowhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A program that was started without one still runs to its end."""
    monkeypatch.setattr(sys, "stderr", None)
    forgive_encoding()
    tell("heard by no one")
    sys.stderr.close()


def test_a_line_that_cannot_be_told_is_no_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A full disk behind standard error does not cost the result."""

    class Full(io.StringIO):
        def write(self, _: str) -> int:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(sys, "stderr", Full())
    tell("lost")
