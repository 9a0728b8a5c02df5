"""Traces that were read before, as Parquet in the user's cache folder.

An entry is named after the bytes of the file and the code that reads them: a file that
changes, or a new version, is read anew. An entry is there whole or not at all; one that
was damaged since is taken away. Nothing here is an error: without a cache, files are
read.
"""

import hashlib
import io
import os
import shutil
import tempfile
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

import msgspec
import polars as pl

from layerscope import __version__
from layerscope.ingest.content import CHUNK_BYTES, Content
from layerscope.progress import Progress
from layerscope.trace import Trace, TraceDevice, TraceNote, TraceSource

VARIABLE: Final = "LAYERSCOPE_CACHE"
"""The folder to use in place of the user's cache folder; "off" for none."""

SMALLEST_BYTES: Final = 2 << 20
"""Of files that are kept; smaller ones are read as fast as their entry would be."""

LARGEST_BYTES: Final = 2 << 30
"""Of all entries; those that were not used for longest go first."""

_OFF: Final = "off"
_HEADER: Final = "header.json"
_FRAMES: Final = ("kernels", "calls", "ranges")


class _Header(msgspec.Struct, frozen=True, kw_only=True):
    """All of a trace but its frames, of which it has the digests."""

    digests: dict[str, str]
    source: TraceSource
    devices: tuple[TraceDevice, ...]
    rank: int | None
    ranks: int | None
    origin_ns: int | None
    notes: tuple[TraceNote, ...]


class TraceCache:
    """The entries in one folder."""

    def __init__(self, folder: Path, *, largest_bytes: int = LARGEST_BYTES) -> None:
        """Use `folder`, which need not exist, for at most `largest_bytes`."""
        self._folder = folder
        self._largest_bytes = largest_bytes

    def key(self, content: Content, progress: Progress) -> str:
        """The name of the entry of `content`; raises `OSError` if it cannot be read."""
        progress.phase(f"comparing {content.path.name}", content.bytes)
        digest = hashlib.blake2b(digest_size=20)
        digest.update(f"{_code()}\0{content.member}\0".encode(errors="replace"))
        with content.path.open("rb") as file:
            while piece := file.read(CHUNK_BYTES):
                digest.update(piece)
                progress.advance(len(piece))
        return digest.hexdigest()

    def load(self, key: str, content: Content) -> Trace | None:
        """What is kept as `key`, as if read from `content`; None if it is not there."""
        entry = self._folder / key
        try:
            header = msgspec.json.decode((entry / _HEADER).read_bytes(), type=_Header)
            frames = {name: _frame(entry, name, header) for name in _FRAMES}
            os.utime(entry)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError, ValueError):
            shutil.rmtree(entry, ignore_errors=True)
            return None
        return Trace(
            source=msgspec.structs.replace(header.source, path=content.name),
            **frames,
            devices=header.devices,
            rank=header.rank,
            ranks=header.ranks,
            origin_ns=header.origin_ns,
            notes=header.notes,
        )

    def store(self, key: str, trace: Trace) -> None:
        """Keep `trace` as `key`, if that can be done, and make room for it."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix=".", dir=self._folder) as new:
                _write(Path(new) / key, trace)
                (Path(new) / key).rename(self._folder / key)
            self._prune()

    def _prune(self) -> None:
        entries = sorted(
            (each for each in self._folder.iterdir() if not each.name.startswith(".")),
            key=lambda each: each.stat().st_mtime_ns,
            reverse=True,
        )
        size = 0
        for entry in entries:
            size += sum(file.stat().st_size for file in entry.iterdir())
            if size > self._largest_bytes:
                shutil.rmtree(entry, ignore_errors=True)


def user_cache() -> TraceCache | None:
    """The cache that the environment names, or None where that is switched off."""
    named = os.environ.get(VARIABLE, "")
    if named.lower() == _OFF:
        return None
    with suppress(RuntimeError):  # a user without a home
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        return TraceCache(Path(named or Path(home) / "layerscope") / "traces")
    return None


@cache
def _code() -> str:
    """What tells this version of the readers from any other."""
    digest = hashlib.blake2b(__version__.encode(), digest_size=20)
    package = Path(str(files("layerscope")))
    modules = [package / f"{name}.py" for name in ("schema", "trace", "trace_names")]
    for module in [*modules, *sorted((package / "ingest").rglob("*.py"))]:
        digest.update(module.read_bytes())
    return digest.hexdigest()


def _digest(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=20).hexdigest()


def _frame(entry: Path, name: str, header: _Header) -> pl.DataFrame:
    # A damaged Parquet file may bring down whoever decodes it.
    data = (entry / f"{name}.parquet").read_bytes()
    if _digest(data) != header.digests.get(name):
        msg = f"{name} has changed since it was written"
        raise ValueError(msg)
    return pl.read_parquet(io.BytesIO(data))


def _write(entry: Path, trace: Trace) -> None:
    entry.mkdir()
    digests = {}
    for name in _FRAMES:
        packed = io.BytesIO()
        getattr(trace, name).write_parquet(packed, compression="lz4", statistics=False)
        data = packed.getvalue()
        (entry / f"{name}.parquet").write_bytes(data)
        digests[name] = _digest(data)
    header = _Header(
        digests=digests,
        source=trace.source,
        devices=trace.devices,
        rank=trace.rank,
        ranks=trace.ranks,
        origin_ns=trace.origin_ns,
        notes=trace.notes,
    )
    (entry / _HEADER).write_bytes(msgspec.json.encode(header))
