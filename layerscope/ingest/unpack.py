"""Bytes out of gzip, zip and zstd, piece by piece, up to where they are damaged.

What bytes are packed in is told by the first of them. A fault in an archive is the end
of what it gives, and the log says that there was one.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any, Final, cast

from layerscope.trace import TraceLog

CHUNK_BYTES: Final = 1 << 20
"""The largest piece in which content is handed out."""

CUT: Final = "archives that end early: cut, or damaged; read up to there"
"""What the log is told of a fault."""

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_ZIP: Final = b"PK\x03\x04"
_EMPTY_ZIP: Final = b"PK\x05\x06"
_MAGIC_BYTES: Final = 4

_GZIP_WINDOW: Final = 31  # zlib's number for a gzip header and trailer
_RAW_WINDOW: Final = -15  # zlib's number for neither
_BITE_BYTES: Final = 1 << 12  # handed to gzip at once, so that a fault costs no more
_ZSTD_BITE_BYTES: Final = 1 << 10  # they unpack to 32 MiB at most
_ZIP_HEADER: Final = struct.Struct("<26xHH")  # a file's: lengths of name and extra
_DEFLATED: Final = 8


def packing(start: bytes) -> str:
    """What bytes that begin with `start` are packed in, or an empty string."""
    if start.startswith(_GZIP):
        return "gzip"
    if start.startswith(_ZSTD):
        return "zstd"
    return "zip" if start.startswith((_ZIP, _EMPTY_ZIP)) else ""


def unpacked(
    pieces: Iterator[bytes], log: TraceLog, layers: int = 2, *, is_within: bool = False
) -> Iterator[bytes]:
    """The bytes in `pieces`, whatever they are packed in, and those packed in that.

    Of a zip archive that is the first file: where there is a table of files, `zipfile`
    reads it, and this is for archives that were cut before it. One within another
    archive is left packed: nobody could tell whether it was cut.

    Args:
        pieces: of any size.
        log: is told where something ends early.
        layers: how many there may be; a zip of gzip files is usual, more are not.
        is_within: whether `pieces` are of a file within an archive.
    """
    first = b""
    for piece in pieces:
        first += piece
        if len(first) >= _MAGIC_BYTES:
            break
    rest = chain([first], pieces)
    packed = packing(first)
    unpack = _UNPACKERS.get(packed) if layers else None
    if unpack is None or (is_within and packed == "zip"):
        return rest
    return unpacked(unpack(rest, log), log, layers - 1, is_within=True)


def in_chunks(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """The same bytes in pieces of `CHUNK_BYTES`, but for the last, which is shorter."""
    parts: list[bytes] = []
    size = 0
    for piece in pieces:
        parts.append(piece)
        size += len(piece)
        if size < CHUNK_BYTES:
            continue
        joined = b"".join(parts)
        whole = size - size % CHUNK_BYTES
        for start in range(0, whole, CHUNK_BYTES):
            yield joined[start : start + CHUNK_BYTES]
        parts, size = [joined[whole:]], size - whole
    if size:
        yield b"".join(parts)


@contextmanager
def ending(log: TraceLog, *faults: type[Exception]) -> Iterator[None]:
    """Take one of `faults` as the end of what is unpacked, and note it."""
    try:
        yield
    except faults:
        log.add("dropped", CUT)


def _bites(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    for piece in pieces:
        for start in range(0, len(piece), size):
            yield piece[start : start + size]


def _inflated(inflate: Any, bite: bytes) -> Iterator[bytes]:  # noqa: ANN401 (untyped)
    """What `bite` makes `inflate` give, `CHUNK_BYTES` at a time."""
    rest, is_full = bite, False
    while (rest or is_full) and not inflate.eof:
        piece = inflate.decompress(rest, CHUNK_BYTES)
        yield piece
        rest, is_full = inflate.unconsumed_tail, len(piece) == CHUNK_BYTES


def _gunzipped(pieces: Iterator[bytes], log: TraceLog) -> Iterator[bytes]:
    """Members of gzip one after another."""
    from isal import igzip_lib, isal_zlib  # noqa: PLC0415 (measuring does without)

    inflate = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
    is_whole = True
    fault = cast("type[Exception]", igzip_lib.IsalError)  # its stub names an instance
    with ending(log, fault):
        for bite in _bites(pieces, _BITE_BYTES):
            rest = bite
            while rest := rest if not is_whole else rest.lstrip(b"\0"):  # padding
                is_whole = False
                yield from _inflated(inflate, rest)
                rest = b""
                if inflate.eof:
                    is_whole, rest = True, inflate.unused_data
                    inflate = isal_zlib.decompressobj(wbits=_GZIP_WINDOW)
        if not is_whole:
            log.add("dropped", CUT)


def _unzstd(pieces: Iterator[bytes], log: TraceLog) -> Iterator[bytes]:
    """Frames of zstd one after another."""
    import zstandard  # noqa: PLC0415 (measuring does without)

    frames = zstandard.ZstdDecompressor()
    inflate = frames.decompressobj()
    is_whole = True
    with ending(log, zstandard.ZstdError):
        for bite in _bites(pieces, _ZSTD_BITE_BYTES):
            rest = bite
            while rest:
                is_whole = False
                yield inflate.decompress(rest)
                rest = b""
                if inflate.eof:
                    is_whole, rest = True, inflate.unused_data
                    inflate = frames.decompressobj()
        if not is_whole:
            log.add("dropped", CUT)


def _first_unzipped(pieces: Iterator[bytes], log: TraceLog) -> Iterator[bytes]:
    """The first file of a zip archive, if it is deflated; its header tells no size."""
    log.add("repaired", "zip archives without a table of files; the first file is read")
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= CHUNK_BYTES:  # names and extra fields are at most 64 KiB each
            break
    if len(head) < _ZIP_HEADER.size or head[8] != _DEFLATED:
        log.add("dropped", CUT)
        return
    start = _ZIP_HEADER.size + sum(_ZIP_HEADER.unpack_from(head))
    inflate = zlib.decompressobj(_RAW_WINDOW)
    with ending(log, zlib.error):
        for bite in _bites(chain([head[start:]], pieces), _BITE_BYTES):
            yield from _inflated(inflate, bite)
            if inflate.eof:
                return
        log.add("dropped", CUT)


_UNPACKERS: Final[dict[str, Callable[[Iterator[bytes], TraceLog], Iterator[bytes]]]] = {
    "gzip": _gunzipped,
    "zip": _first_unzipped,
    "zstd": _unzstd,
}
