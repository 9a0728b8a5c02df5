"""Files packed as users pack them."""

import gzip
import zipfile
from pathlib import Path

import zstandard


def zipped(path: Path, *members: tuple[str, bytes]) -> Path:
    """A deflated zip archive of `members` at `path`."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return path


def zstd(data: bytes) -> bytes:
    """`data` as a frame of zstd."""
    return zstandard.ZstdCompressor().compress(data)


def gzipped(data: bytes) -> bytes:
    """`data` as a member of gzip."""
    return gzip.compress(data, mtime=0)


def written(path: Path, data: bytes) -> Path:
    """A file of `data` at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path
