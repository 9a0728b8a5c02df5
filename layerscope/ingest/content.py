"""What is in a trace file, whatever it is packed in: plain, gzip, zip or zstd.

What a file is packed in is told by its first bytes, never by its name. An archive that
is cut or damaged gives what could be unpacked, and the log says that it ended early.
"""

import lzma
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias

from layerscope.errors import InputError
from layerscope.ingest.unpack import CHUNK_BYTES, ending, in_chunks, packing, unpacked
from layerscope.progress import Progress, SilentProgress
from layerscope.trace import TraceLog

__all__ = ["CHUNK_BYTES", "HEAD_BYTES", "Content", "contents_of"]

HEAD_BYTES: Final = 1 << 16
"""How much of the beginning formats are told by."""

MOST_MEMBERS: Final = 1_000
"""Files in a zip archive; each of them is opened to see what it is."""

_SUSPECT_BYTES: Final = 1 << 24
_SUSPECT_RATIO: Final = 300  # traces shrink to a tenth, seldom to a fiftieth
_TOO_MUCH: Final = "archives that unpack to over 300 times their size, cut there"

_Pieces: TypeAlias = Iterator[bytes]


@dataclass(frozen=True, slots=True)
class Content:
    """One trace within a file, unpacked as it is read."""

    path: Path
    """The file on disk."""

    member: str
    """Name within a zip archive, or empty."""

    head: bytes
    """Its first `HEAD_BYTES`, or all of it where there are fewer."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return f"{self.path}/{self.member}" if self.member else str(self.path)

    def chunks(self, log: TraceLog, progress: Progress | None = None) -> _Pieces:
        """Its bytes, unpacked, in pieces of at most `CHUNK_BYTES`, none of them empty.

        Args:
            log: is told where the content ends early, or is cut because it unpacks to
                far more than a trace does.
            progress: is told of the bytes on disk that have been read.

        Raises:
            InputError: it cannot be read.
        """
        most = max(_SUSPECT_BYTES, _SUSPECT_RATIO * self.bytes)
        size = 0
        with _reported(self.name):
            for chunk in in_chunks(
                _unpacked(self.path, self.member, log, progress or SilentProgress())
            ):
                size += len(chunk)
                if size > most:
                    log.add("dropped", _TOO_MUCH)
                    return
                yield chunk

    @contextmanager
    def on_disk(
        self, log: TraceLog, progress: Progress | None = None
    ) -> Iterator[Path]:
        """A plain file of its bytes: itself, or a copy that is removed afterwards."""
        with _reported(self.name), self.path.open("rb") as file:
            is_plain = not self.member and not packing(file.read(4))
        if is_plain:
            yield self.path
            return
        with tempfile.NamedTemporaryFile(prefix="layerscope-") as copy:
            with _reported(f"an unpacked copy of {self.name}"):
                for chunk in self.chunks(log, progress):
                    copy.write(chunk)
                copy.flush()
            yield Path(copy.name)

    @property
    def bytes(self) -> int:
        """Size of the file on disk."""
        with _reported(self.name):
            return self.path.stat().st_size


def contents_of(path: Path) -> list[Content]:
    """The traces in the file `path`: one, or as many as a zip archive has files.

    Raises:
        InputError: it cannot be read, or holds nothing.
    """
    _refuse_streams(path)
    with _reported(str(path)):
        with path.open("rb") as file:
            start = file.read(4)
        if not start:
            msg = f"{path} is empty; give a file that holds a trace"
            raise InputError(msg)
        members = _members(path) if packing(start) == "zip" else [""]
        if not members:
            msg = f"{path} is a zip archive of no files; give one that holds a trace"
            raise InputError(msg)
        if len(members) > MOST_MEMBERS:
            msg = f"{path} holds {len(members)} files; unpack it, and give the traces"
            raise InputError(msg)
        return [Content(path, member, _head(path, member)) for member in members]


def _refuse_streams(path: Path) -> None:
    """Pipes and devices: their bytes come once, if at all, and are read twice."""
    with _reported(str(path)):
        kind = path.stat().st_mode
    if not (stat.S_ISREG(kind) or stat.S_ISDIR(kind)):  # a folder says so on opening
        msg = (
            f"{path} is a pipe or a device, and no file; give a file, which may be "
            "packed by gzip, zip or zstd"
        )
        raise InputError(msg)


def _members(path: Path) -> list[str]:
    """Names of the files in a zip archive; one empty name where its table is lost."""
    if not zipfile.is_zipfile(path):
        return [""]
    with zipfile.ZipFile(path) as archive:
        names = [each.filename for each in archive.infolist() if not each.is_dir()]
    return [name for name in dict.fromkeys(names) if not name.startswith("__MACOSX/")]


def _head(path: Path, member: str) -> bytes:
    head = b""
    for piece in _unpacked(path, member, TraceLog(), SilentProgress()):
        head += piece
        if len(head) >= HEAD_BYTES:
            break
    return head[:HEAD_BYTES]


@contextmanager
def _reported(name: str) -> Iterator[None]:
    """Say in one line why a file cannot be read at all."""
    try:
        yield
    except OSError as error:
        msg = f"cannot read {name}: {error.strerror or error}"
        raise InputError(msg) from error
    except (
        zipfile.BadZipFile,
        NotImplementedError,  # of zipfile: a packing that it does not know
        RuntimeError,  # of zipfile: it is encrypted
        struct.error,
        LookupError,  # of zipfile: names that are empty, or not in its table
        ValueError,  # of zipfile: places outside the file, names that are no text
    ) as error:
        msg = f"cannot unpack {name}: {error}; unpack it yourself, and give that"
        raise InputError(msg) from error


def _unpacked(path: Path, member: str, log: TraceLog, progress: Progress) -> _Pieces:
    with path.open("rb") as file:
        archive = zipfile.ZipFile(file) if member else None
        with archive.open(member) if archive else nullcontext(file) as stream:

            def pieces() -> _Pieces:
                at = file.tell()
                faults = (zlib.error, lzma.LZMAError, EOFError, zipfile.BadZipFile)
                with ending(log, *faults):
                    while piece := stream.read(CHUNK_BYTES):
                        progress.advance(max(0, file.tell() - at))
                        at = file.tell()
                        yield piece

            yield from unpacked(pieces(), log, is_within=bool(member))
