import os
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from layerscope.ingest import cache as module
from layerscope.ingest.cache import TraceCache, user_cache
from layerscope.ingest.content import Content, contents_of
from layerscope.progress import SilentProgress
from layerscope.schema import TRACE_CALLS, TRACE_KERNELS, TRACE_RANGES, empty
from layerscope.trace import Trace, TraceDevice, TraceNote, TraceSource
from tests.ingest.packed import written

TRACE = Trace(
    source=TraceSource(path="elsewhere", format="Kineto JSON", bytes=3),
    kernels=pl.DataFrame(
        [
            {
                **dict.fromkeys(TRACE_KERNELS),
                "kind": "kernel",
                "name": "gemm",
                "start_ns": 1,
                "duration_ns": 2,
            }
        ],
        schema=TRACE_KERNELS,
    ),
    calls=empty(TRACE_CALLS),
    ranges=empty(TRACE_RANGES),
    devices=(TraceDevice(device=0, name="NVIDIA H200"),),
    rank=3,
    ranks=8,
    origin_ns=17,
    notes=(
        TraceNote(kind="dropped", what="calls without times", count=2),
        TraceNote(kind="untrusted", what="replays", about="kernels missing"),
    ),
)


@pytest.fixture
def content(tmp_path: Path) -> Content:
    """A file to be read."""
    return contents_of(written(tmp_path / "traces" / "a.json", b"[1]"))[0]


@pytest.fixture
def cache(tmp_path: Path) -> TraceCache:
    """A cache without entries."""
    return TraceCache(tmp_path / "cache")


def key(cache: TraceCache, content: Content) -> str:
    """The entry of `content`."""
    return cache.key(content, SilentProgress())


def test_what_was_stored_is_loaded(cache: TraceCache, content: Content) -> None:
    """All of the trace comes back, and its path is that of the file at hand."""
    cache.store("key", TRACE)
    loaded = cache.load("key", content)
    assert loaded is not None
    for name in ("kernels", "calls", "ranges"):
        assert_frame_equal(getattr(loaded, name), getattr(TRACE, name))
    assert loaded.source == TraceSource(
        path=content.name, format="Kineto JSON", bytes=3
    )
    for name in ("devices", "rank", "ranks", "origin_ns", "notes"):
        assert getattr(loaded, name) == getattr(TRACE, name)


def test_nothing_is_loaded_where_nothing_was_stored(
    cache: TraceCache, content: Content
) -> None:
    """The folder need not exist."""
    assert cache.load("key", content) is None


def test_the_key_is_of_the_bytes(
    cache: TraceCache, content: Content, tmp_path: Path
) -> None:
    """A copy has the same key; a byte more, or another member, has not."""
    [copy] = contents_of(written(tmp_path / "b.json", b"[1]"))
    [longer] = contents_of(written(tmp_path / "c.json", b"[1]\n"))
    member = Content(content.path, "member", content.head)
    assert key(cache, copy) == key(cache, content)
    assert len({key(cache, each) for each in (content, longer, member)}) == 3


def test_the_key_is_of_the_readers_too(
    cache: TraceCache, content: Content, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another version may read the same bytes otherwise."""
    before = key(cache, content)
    monkeypatch.setattr(module, "_code", lambda: "other readers")
    assert key(cache, content) != before


@pytest.mark.parametrize("name", ["header.json", "kernels.parquet"])
@pytest.mark.parametrize("damage", [b"", b"PAR1 and no more"])
def test_a_damaged_entry_is_ignored_and_replaced(
    cache: TraceCache, content: Content, tmp_path: Path, name: str, damage: bytes
) -> None:
    """It is taken away, so that the next reading can be kept."""
    cache.store("key", TRACE)
    (tmp_path / "cache" / "key" / name).write_bytes(damage)
    assert cache.load("key", content) is None
    cache.store("key", TRACE)
    assert cache.load("key", content) is not None


def test_an_entry_is_whole_or_not_there(
    cache: TraceCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is full while it is written leaves nothing behind."""

    def fail(self: Path, data: bytes) -> int:
        raise OSError(28, "No space left on device", str(self), len(data))

    monkeypatch.setattr(Path, "write_bytes", fail)
    cache.store("key", TRACE)
    assert list((tmp_path / "cache").iterdir()) == []


def test_what_was_not_used_for_longest_makes_room(
    content: Content, tmp_path: Path
) -> None:
    """Loading an entry counts as using it."""
    folder = tmp_path / "cache"
    TraceCache(folder).store("a", TRACE)
    size = sum(file.stat().st_size for file in (folder / "a").iterdir())
    cache = TraceCache(folder, largest_bytes=2 * size)
    cache.store("b", TRACE)
    for entry, time_s in (("a", 1_000), ("b", 2_000)):
        os.utime(folder / entry, (time_s, time_s))
    assert cache.load("a", content) is not None
    cache.store("c", TRACE)
    assert sorted(each.name for each in folder.iterdir()) == ["a", "c"]


def test_a_folder_that_cannot_be_written_is_no_error(
    content: Content, tmp_path: Path
) -> None:
    """Files are read without a cache then."""
    cache = TraceCache(written(tmp_path / "file", b"") / "cache")
    cache.store("key", TRACE)
    assert cache.load("key", content) is None


def test_the_environment_names_the_folder(
    content: Content, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one reader keeps there, another finds."""
    monkeypatch.setenv("LAYERSCOPE_CACHE", str(tmp_path / "named"))
    cache = user_cache()
    assert cache is not None
    cache.store("key", TRACE)
    assert (tmp_path / "named" / "traces" / "key").is_dir()
    assert cache.load("key", content) is not None


def test_the_environment_can_switch_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept then."""
    monkeypatch.setenv("LAYERSCOPE_CACHE", "off")
    assert user_cache() is None
