import os
from collections.abc import Callable
from pathlib import Path

import pytest

from layerscope.errors import InputError
from layerscope.ingest.content import HEAD_BYTES, Content, contents_of
from layerscope.trace import TraceLog, TraceNote
from tests.ingest.packed import gzipped, written, zipped, zstd

Pack = Callable[[bytes], bytes]
TEXT = b"".join(b'{"ph": "X", "ts": %d}\n' % number for number in range(20_000))


class Counting:
    """Counts what it is told."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.steps = 0

    def phase(self, name: str, total: int) -> None:
        """Do nothing."""

    def advance(self, steps: int = 1) -> None:
        """Count."""
        self.steps += steps


def read(content: Content) -> bytes:
    """All of its bytes."""
    return b"".join(content.chunks(TraceLog()))


@pytest.mark.parametrize("pack", [bytes, gzipped, zstd])
def test_a_file_is_one_content_however_it_is_packed(tmp_path: Path, pack: Pack) -> None:
    """The name says nothing: all of these are called alike."""
    path = written(tmp_path / "trace", pack(TEXT))
    [content] = contents_of(path)
    assert content == Content(path, "", TEXT[:HEAD_BYTES])
    assert read(content) == TEXT
    assert content.name == str(path)
    assert content.bytes == len(pack(TEXT))


def test_every_file_of_a_zip_archive_is_a_content(tmp_path: Path) -> None:
    """Folders and what macOS adds are none; a packed file in it is unpacked."""
    path = zipped(
        tmp_path / "ranks.zip",
        ("ranks/", b""),
        ("ranks/0.json", TEXT),
        ("ranks/1.json.gz", gzipped(b"one")),
        ("__MACOSX/ranks/._0.json", b"\0"),
    )
    contents = contents_of(path)
    assert [content.member for content in contents] == [
        "ranks/0.json",
        "ranks/1.json.gz",
    ]
    assert [read(content) for content in contents] == [TEXT, b"one"]
    assert contents[1].name == f"{path}/ranks/1.json.gz"


@pytest.mark.parametrize("pack", [bytes, gzipped, zstd])
def test_progress_is_told_of_the_bytes_on_disk(tmp_path: Path, pack: Pack) -> None:
    """They add up to the size of the file."""
    [content] = contents_of(written(tmp_path / "trace", pack(TEXT)))
    progress = Counting()
    assert b"".join(content.chunks(TraceLog(), progress)) == TEXT
    assert progress.steps == content.bytes


def test_a_plain_file_is_on_disk_as_it_is(tmp_path: Path) -> None:
    """Nothing is copied that need not be."""
    [content] = contents_of(written(tmp_path / "plain", TEXT))
    with content.on_disk(TraceLog()) as path:
        assert path == content.path


def test_a_packed_file_is_on_disk_as_a_copy(tmp_path: Path) -> None:
    """The copy is gone afterwards."""
    [content] = contents_of(written(tmp_path / "packed", gzipped(TEXT)))
    with content.on_disk(TraceLog()) as path:
        assert path.read_bytes() == TEXT
    assert not path.exists()


def test_a_file_that_unpacks_to_far_too_much_is_cut(tmp_path: Path) -> None:
    """It would fill the disk, or be read for hours."""
    [content] = contents_of(written(tmp_path / "bomb", gzipped(b"\0" * (64 << 20))))
    log = TraceLog()
    size = sum(len(chunk) for chunk in content.chunks(log))
    assert size <= max(16 << 20, 300 * content.bytes)
    what = "archives that unpack to over 300 times their size, cut there"
    assert log.notes() == (TraceNote(kind="dropped", what=what),)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty; give a file"),
        (b"PK\x05\x06" + b"\0" * 18, "is a zip archive of no files"),
    ],
)
def test_files_of_nothing_are_refused(
    tmp_path: Path, data: bytes, message: str
) -> None:
    """One line says so."""
    with pytest.raises(InputError, match=message):
        contents_of(written(tmp_path / "trace", data))


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """As is one that may not be read."""
    with pytest.raises(InputError, match=r"cannot read .*: No such file"):
        contents_of(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"cannot read .*: Is a directory"):
        contents_of(tmp_path)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    """A pipe would be waited for, and a device may never end."""
    os.mkfifo(tmp_path / "fifo")
    message = r" is a pipe or a device, and no file; give a file, which may be packed"
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(InputError, match=f"^{path}{message}"):
            contents_of(path)


def test_a_pipe_of_the_shell_is_refused() -> None:
    """As of ``<(zcat FILE)``: nobody could go back in it."""
    reader, writer = os.pipe()
    try:
        with pytest.raises(InputError, match="is a pipe or a device"):
            contents_of(Path(f"/dev/fd/{reader}"))
    finally:
        os.close(reader)
        os.close(writer)


def test_an_encrypted_archive_is_refused(tmp_path: Path) -> None:
    """It says so itself."""
    packed = bytearray(zipped(tmp_path / "a", ("a", TEXT)).read_bytes())
    packed[6] |= 1  # encrypted, says the file's own header
    packed[packed.rindex(b"PK\x01\x02") + 8] |= 1  # and the table's
    path = written(tmp_path / "b", bytes(packed))
    with pytest.raises(InputError, match=r"cannot unpack .* is encrypted"):
        contents_of(path)
